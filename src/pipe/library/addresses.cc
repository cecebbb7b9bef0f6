#include "pipe/library/addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ferry::pd {

int read_address(const sockaddr* address, socklen_t size, std::uint16_t family,
                 pipe::SocketAddress* result) {
  if (address == nullptr || size < sizeof address->sa_family) return EINVAL;
  if (address->sa_family != family) return EAFNOSUPPORT;
  *result = {};
  result->family = family;
  if (family == AF_INET) {
    sockaddr_in in{};
    if (size < sizeof in) return EINVAL;
    std::memcpy(&in, address, sizeof in);
    result->port = ntohs(in.sin_port);
    std::memcpy(result->ip.data(), &in.sin_addr, sizeof in.sin_addr);
  } else {
    sockaddr_in6 in6{};
    if (size < sizeof in6) return EINVAL;
    std::memcpy(&in6, address, sizeof in6);
    result->port = ntohs(in6.sin6_port);
    std::memcpy(result->ip.data(), &in6.sin6_addr, sizeof in6.sin6_addr);
  }
  return 0;
}

void write_address(const pipe::SocketAddress& from, sockaddr* address, socklen_t* size) {
  if (address == nullptr || size == nullptr) return;
  sockaddr_storage whole{};
  socklen_t length = sizeof(sockaddr_in);
  if (from.family == AF_INET) {
    auto& in = reinterpret_cast<sockaddr_in&>(whole);
    in.sin_family = AF_INET;
    in.sin_port = htons(from.port);
    std::memcpy(&in.sin_addr, from.ip.data(), sizeof in.sin_addr);
  } else {
    length = sizeof(sockaddr_in6);
    auto& in6 = reinterpret_cast<sockaddr_in6&>(whole);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(from.port);
    std::memcpy(&in6.sin6_addr, from.ip.data(), sizeof in6.sin6_addr);
  }
  std::memcpy(address, &whole, std::min(*size, length));
  *size = length;
}

pipe::SocketAddress address_of(int socket, bool peer) {
  sockaddr_storage whole{};
  socklen_t size = sizeof whole;
  auto* address = reinterpret_cast<sockaddr*>(&whole);
  pipe::SocketAddress result;
  if ((peer ? ::getpeername(socket, address, &size) : ::getsockname(socket, address, &size)) == 0) {
    read_address(address, size, whole.ss_family, &result);
  }
  return result;
}

}  // namespace ferry::pd
