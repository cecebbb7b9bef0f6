#include "migrate/peer.h"

#include <fmt/format.h>

#include "migrate/failure.h"
#include "migrate/host.h"
#include "migrate/net.h"

namespace ferry::migrate {

Peer::Peer(const std::string& host) : name_(host) {
  const auto [bare, port] = split_host_port(host, kFerrydPort);
  address_ = resolve(bare);
  target_ = join_host_port(address_, port);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A shared pool would make this move wait out the back-off of an earlier one that found nobody.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  stub_ = v1::Ferryd::NewStub(
      grpc::CreateCustomChannel(target_, grpc::InsecureChannelCredentials(), arguments));
}

void Peer::throw_unless_ok(const grpc::Status& status) const {
  switch (status.error_code()) {
    case grpc::OK: return;
    case grpc::UNAVAILABLE:
      throw Failure(fmt::format("there is no ferryd on {} ({}); start it there", name_, target_));
    case grpc::DEADLINE_EXCEEDED:
      throw Failure(fmt::format("the ferryd of {} ({}) does not answer", name_, target_));
    case grpc::UNIMPLEMENTED:
      throw Failure(fmt::format(
          "the ferryd of {} ({}) is of another version; install the same on both", name_, target_));
    default: throw Failure(fmt::format("{}: {}", name_, one_line(status.error_message())));
  }
}

}  // namespace ferry::migrate
