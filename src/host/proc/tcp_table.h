#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// The kernel's table of TCP sockets.
namespace ferry::host {

// A line of /proc/net/tcp or tcp6.
struct TcpSocket {
  std::uint64_t inode = 0;
  std::string address, peer_address;
  bool is_anywhere =
      false;  // its own address is on every host: the wildcard, or a loopback address
  int port = 0, peer_port = 0;
  bool listens = false;
  bool is_closed = false;  // by its peer
};
std::optional<TcpSocket> parse_tcp_socket(const std::string& line);

// Those that processes of the tree have open in the network namespace of its root.
std::vector<TcpSocket> tcp_sockets_of_tree(pid_t root);

}  // namespace ferry::host
