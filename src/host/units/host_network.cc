#include "host/units/host_network.h"

#include <fmt/core.h>

#include <algorithm>

#include "host/proc/tcp_table.h"

namespace ferry::host {

std::string obstacle_on_host_network(pid_t root) {
  const auto ours = tcp_sockets_of_tree(root);
  for (const auto& socket : ours) {
    if (socket.listens && !socket.is_anywhere) {
      return fmt::format(
          "it is on the host's network and listens at {}, port {}, which stays here; let it listen "
          "at all addresses",
          socket.address, socket.port);
    }
    const bool is_inside = std::any_of(ours.begin(), ours.end(), [&](const TcpSocket& other) {
      return socket.is_anywhere && other.is_anywhere && other.port == socket.peer_port &&
             other.peer_port == socket.port;
    });
    // A socket that is only bound has no peer.
    if (!socket.listens && !is_inside && socket.peer_port != 0) {
      return fmt::format(
          "it is on the host's network and has a TCP connection (to port {}), which cannot move to "
          "another address",
          socket.peer_port);
    }
  }
  return {};
}

}  // namespace ferry::host
