#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

namespace carriers {

// Where a program listens: ADDRESS:PORT, or the path of a Unix socket, which has a '/'.
struct Address {
  explicit Address(const std::string& where);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&whole); }

  const bool is_unix;
  sockaddr_storage whole{};
  socklen_t size = 0;
};

// Of "10.0.0.2:5000". Another text ends the program.
sockaddr_in parse(const std::string& where);
inline bool is_path(const std::string& where) {
  return where.find('/') != std::string::npos;
}
// Of "A,B,C".
std::vector<std::string> split(const std::string& list);

}  // namespace carriers
