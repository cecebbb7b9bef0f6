#include "host/units/rdma_cm_trial.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/failure.h"
#include "base/unique_fd.h"
#include "ferry.pb.h"
#include "host/directory/places.h"
#include "port/udp_socket.h"

namespace ferry::host {
namespace {

// Gives one command to rdma_cm. 0 or an errno value.
template <typename Body>
int command_rdma_cm(int file, std::uint32_t number, const Body& body, std::size_t room = 0) {
  const rdma_ucm_cmd_hdr header{number, sizeof body, static_cast<std::uint16_t>(room)};
  std::byte bytes[sizeof header + sizeof body];
  std::memcpy(bytes, &header, sizeof header);
  std::memcpy(bytes + sizeof header, &body, sizeof body);
  return ::write(file, bytes, sizeof bytes) >= 0 ? 0 : errno;
}

int switch_on(int file, std::uint32_t id, std::uint32_t option) {
  const int yes = 1;
  rdma_ucm_set_option set{};
  set.optval = reinterpret_cast<std::uintptr_t>(&yes);
  set.id = id;
  set.level = RDMA_OPTION_ID;
  set.optname = option;
  set.optlen = sizeof yes;
  return command_rdma_cm(file, RDMA_USER_CM_CMD_SET_OPTION, set);
}

// 0 or an errno value. The ID lasts as long as the file.
int bind_id(int file, const agent::RdmaCmBound& bound) {
  rdma_ucm_create_id_resp made{};
  rdma_ucm_create_id create{};
  create.response = reinterpret_cast<std::uintptr_t>(&made);
  create.ps = bound.port_space;
  if (const int error = command_rdma_cm(file, RDMA_USER_CM_CMD_CREATE_ID, create, sizeof made))
    return error;
  if (bound.shares_port) {
    if (const int error = switch_on(file, made.id, RDMA_OPTION_ID_REUSEADDR)) return error;
  }
  if (bound.is_ipv6_only) {
    if (const int error = switch_on(file, made.id, RDMA_OPTION_ID_AFONLY)) return error;
  }
  port::SocketAddress address{};
  rdma_ucm_bind bind{};
  bind.id = made.id;
  bind.addr_size = static_cast<std::uint16_t>(port::to_socket_address(bound.local, 0, &address));
  std::memcpy(&bind.addr, &address, sizeof address);
  return command_rdma_cm(file, RDMA_USER_CM_CMD_BIND, bind);
}

}  // namespace

void try_rdma_cm(const std::string& host, const std::string& program,
                 const std::vector<agent::RdmaCmBound>& bound, const std::string& device) {
  const UniqueFd file(::open(device.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) {
    throw Failure(fmt::format("{} has no {}, which '{}' uses: {}; load it there: modprobe rdma_ucm",
                              host, device, program, error_text(errno)));
  }
  for (const agent::RdmaCmBound& each : bound) {
    const int error = bind_id(file.get(), each);
    if (error == 0) continue;
    throw Failure(fmt::format("'{}' has port {} of rdma_cm, which it cannot have on {}: {}",
                              program, each.local.udp_port, host, error_text(error)));
  }
}

void to_message(const std::vector<agent::RdmaCmBound>& bound, v1::RdmaCm* message) {
  for (const agent::RdmaCmBound& each : bound) {
    auto& added = *message->add_bound();
    added.set_port_space(each.port_space);
    to_message(each.local, added.mutable_local());
    added.set_shares_port(each.shares_port);
    added.set_is_ipv6_only(each.is_ipv6_only);
  }
}

std::vector<agent::RdmaCmBound> from_message(const v1::RdmaCm& message) {
  constexpr int kMost = 4096;  // the trial makes them all
  if (message.bound_size() > kMost)
    throw Failure(fmt::format("the program has more than {} bound IDs of rdma_cm", kMost));
  std::vector<agent::RdmaCmBound> bound;
  for (const auto& each : message.bound()) {
    const std::optional<port::Endpoint> local = from_message(each.local());
    if (!local) throw Failure("malformed request");
    bound.push_back({static_cast<std::uint16_t>(each.port_space()), *local, each.shares_port(),
                     each.is_ipv6_only()});
  }
  return bound;
}

}  // namespace ferry::host
