#include "rdmacm/address.h"

#include <endian.h>
#include <netinet/in.h>

#include <cstring>

namespace ferry::rdmacm {

port::Address any_address(std::uint16_t family) {
  return family == AF_INET ? port::Address::from_ipv4(0) : port::Address{};
}

bool Address::is_any() const {
  return wildcard || ip == any_address(family);
}

bool Address::is_loopback() const {
  if (family == AF_INET) return ip.bytes[12] == std::byte{127};
  port::Address one{};
  one.bytes[15] = std::byte{1};
  return family == AF_INET6 && ip == one;
}

bool Address::is_multicast() const {
  if (family == AF_INET) return (static_cast<unsigned>(ip.bytes[12]) & 0xF0) == 0xE0;
  return ip.bytes[0] == std::byte{0xFF};
}

std::size_t Address::size() const {
  switch (family) {
    case AF_INET: return sizeof(sockaddr_in);
    case AF_INET6: return sizeof(sockaddr_in6);
    case kAfIb: return sizeof(SockaddrIb);
    default: return 0;
  }
}

void Address::store(void* out) const {
  if (family == AF_INET) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port);
    std::memcpy(&a.sin_addr, ip.bytes.data() + 12, 4);
    std::memcpy(out, &a, sizeof a);
  } else if (family == AF_INET6) {
    sockaddr_in6 a{};
    a.sin6_family = AF_INET6;
    a.sin6_port = htons(port);
    a.sin6_scope_id = scope;
    std::memcpy(&a.sin6_addr, ip.bytes.data(), 16);
    std::memcpy(out, &a, sizeof a);
  } else if (family == kAfIb) {
    SockaddrIb a{};
    a.family = kAfIb;
    a.pkey = 0xFFFF;
    std::memcpy(a.gid, ip.bytes.data(), 16);
    a.service_id = htobe64(ib_service_id);
    std::memcpy(out, &a, sizeof a);
  }
}

std::optional<Address> parse_address(const void* from, std::size_t size) {
  sockaddr head;
  if (size < sizeof head.sa_family) return std::nullopt;
  std::memcpy(&head.sa_family, from, sizeof head.sa_family);
  Address result;
  result.family = head.sa_family;
  if (size < result.size()) return std::nullopt;
  if (result.family == AF_INET) {
    sockaddr_in a;
    std::memcpy(&a, from, sizeof a);
    result.ip = port::Address::from_ipv4(ntohl(a.sin_addr.s_addr));
    result.port = ntohs(a.sin_port);
  } else if (result.family == AF_INET6) {
    sockaddr_in6 a;
    std::memcpy(&a, from, sizeof a);
    std::memcpy(result.ip.bytes.data(), &a.sin6_addr, 16);
    result.port = ntohs(a.sin6_port);
    result.scope = a.sin6_scope_id;
  } else if (result.family == kAfIb) {
    SockaddrIb a;
    std::memcpy(&a, from, sizeof a);
    std::memcpy(result.ip.bytes.data(), a.gid, 16);
    result.ib_service_id = be64toh(a.service_id);
    result.port = cm::port_of(result.ib_service_id);
  } else {
    return std::nullopt;
  }
  return result;
}

}  // namespace ferry::rdmacm
