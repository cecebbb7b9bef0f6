#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

// What programs and containers on their host's network have at the host's addresses, which stay
// where they are.
namespace ferry::host {

// A line of /proc/net/tcp or tcp6.
struct TcpSocket {
  std::uint64_t inode = 0;
  std::string address;       // its own
  bool is_anywhere = false;  // is on every host: the wildcard, or a loopback address
  int port = 0, peer_port = 0;
  bool listens = false;
};
std::optional<TcpSocket> parse_tcp_socket(const std::string& line);

// Why the processes of the tree cannot go on at another host's addresses, in one line; empty: they
// can. A connection over loopback moves if both ends are in the tree.
std::string obstacle_on_host_network(pid_t root);

}  // namespace ferry::host
