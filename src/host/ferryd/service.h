#pragma once

#include <memory>

namespace grpc {
class Service;
}  // namespace grpc

// The gRPC services over the daemon: messages in, Failures out as statuses.
namespace ferry::host {

class Daemon;
struct Host;

// For other ferryds. Both refer to what they are given.
std::shared_ptr<grpc::Service> make_ferryd_service(Daemon& daemon, Host& host);
// For the ferry command.
std::shared_ptr<grpc::Service> make_local_service(Daemon& daemon, const Host& host);

}  // namespace ferry::host
