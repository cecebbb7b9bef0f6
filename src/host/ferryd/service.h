#pragma once

#include <memory>

namespace grpc {
class Service;
}  // namespace grpc

// The gRPC services over the daemon: messages in, Failures out as statuses.
namespace ferry::host {

class Attestor;
class Checkup;
class ControlServer;
class Daemon;
class Directory;
class ImageReceiver;
class Whereabouts;
struct ThisHost;

// For other ferryds. Both services keep references to their arguments.
std::shared_ptr<grpc::Service> make_ferryd_service(Daemon& daemon, const ThisHost& host,
                                                   Directory& directory, Whereabouts& whereabouts,
                                                   const Attestor& attestor,
                                                   const ImageReceiver& images, Checkup& checkup);
// For the ferry command.
std::shared_ptr<grpc::Service> make_local_service(Daemon& daemon, const ControlServer& control,
                                                  Checkup& checkup);

}  // namespace ferry::host
