#include "port/udp_socket.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "port/port.h"

namespace ferry::port {
namespace {

bool set(int descriptor, int level, int option, int value) {
  return setsockopt(descriptor, level, option, &value, sizeof value) == 0;
}

bool is_link_local(const Address& address) {
  const bool unicast = address.bytes[0] == std::byte{0xFE} &&
                       (address.bytes[1] & std::byte{0xC0}) == std::byte{0x80};
  const bool multicast = address.bytes[0] == std::byte{0xFF} &&
                         (address.bytes[1] & std::byte{0x0F}) == std::byte{0x02};
  return unicast || multicast;
}

}  // namespace

socklen_t to_socket_address(const Endpoint& endpoint, std::uint32_t scope, SocketAddress* out) {
  const auto& bytes = endpoint.address.bytes;
  if (endpoint.address.is_ipv4()) {
    out->v4 = {};
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons(endpoint.udp_port);
    std::memcpy(&out->v4.sin_addr, bytes.data() + 12, 4);
    return sizeof out->v4;
  }
  out->v6 = {};
  out->v6.sin6_family = AF_INET6;
  out->v6.sin6_port = htons(endpoint.udp_port);
  std::memcpy(&out->v6.sin6_addr, bytes.data(), 16);
  if (is_link_local(endpoint.address)) out->v6.sin6_scope_id = scope;
  return sizeof out->v6;
}

Endpoint from_socket_address(const SocketAddress& address) {
  Endpoint endpoint;
  if (address.any.sa_family == AF_INET) {
    endpoint.address = Address::from_ipv4(ntohl(address.v4.sin_addr.s_addr));
    endpoint.udp_port = ntohs(address.v4.sin_port);
  } else if (address.any.sa_family == AF_INET6) {
    std::memcpy(endpoint.address.bytes.data(), &address.v6.sin6_addr, 16);
    endpoint.udp_port = ntohs(address.v6.sin6_port);
  }
  return endpoint;
}

unsigned interface_of(const Address& address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return 0;
  unsigned index = 0;
  for (const ifaddrs* entry = all; entry != nullptr && index == 0; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    SocketAddress found{};
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::memcpy(&found, entry->ifa_addr, family == AF_INET ? sizeof found.v4 : sizeof found.v6);
    if (from_socket_address(found).address == address) index = if_nametoindex(entry->ifa_name);
  }
  freeifaddrs(all);
  return index;
}

std::uint32_t scope_of(const Address& address) {
  return is_link_local(address) ? interface_of(address) : 0;
}

// Makes datagrams to a group leave through the interface of the device. If that is unknown or
// refused, the routing table chooses.
void choose_multicast_interface(int descriptor, const Address& local) {
  const unsigned interface = interface_of(local);
  if (interface == 0) return;
  if (local.is_ipv4()) {
    ip_mreqn request{};
    request.imr_ifindex = static_cast<int>(interface);
    setsockopt(descriptor, IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof request);
  } else {
    set(descriptor, IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(interface));
  }
}

void set_multicast_hops(int descriptor, bool ipv4, std::uint8_t hops) {
  if (ipv4) {
    set(descriptor, IPPROTO_IP, IP_MULTICAST_TTL, hops);
  } else {
    set(descriptor, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, hops);
  }
}

int open_udp_socket(const Endpoint& local, std::uint32_t scope, int* error) {
  const bool ipv4 = local.address.is_ipv4();
  const int descriptor = socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) {
    *error = errno;
    return -1;
  }
  // Options are set before bind(): datagrams may come in as soon as it returns.
  if (configure_udp_socket(descriptor, ipv4, error)) {
    SocketAddress address;
    const socklen_t length = to_socket_address(local, scope, &address);
    if (::bind(descriptor, &address.any, length) == 0) {
      choose_multicast_interface(descriptor, local.address);
      return descriptor;
    }
    *error = errno;
  }
  close(descriptor);
  return -1;
}

int open_group_socket(const Endpoint& group, const Address& local, int* error) {
  const bool ipv4 = group.address.is_ipv4();
  const unsigned interface = interface_of(local);
  if (!group.address.is_multicast() || ipv4 != local.is_ipv4()) {
    *error = EINVAL;
    return -1;
  }
  if (interface == 0) {
    *error = ENODEV;
    return -1;
  }
  const int descriptor = socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) {
    *error = errno;
    return -1;
  }
  SocketAddress address;
  const socklen_t length = to_socket_address(group, interface, &address);
  bool good = configure_udp_socket(descriptor, ipv4, error);
  if (good) {
    good = set(descriptor, SOL_SOCKET, SO_REUSEADDR, 1) &&
           ::bind(descriptor, &address.any, length) == 0;
    if (ipv4) {
      ip_mreqn request{};
      request.imr_multiaddr = address.v4.sin_addr;
      request.imr_ifindex = static_cast<int>(interface);
      // Keeps out what other sockets of the host have joined on other interfaces.
      good = good && set(descriptor, IPPROTO_IP, IP_MULTICAST_ALL, 0) &&
             setsockopt(descriptor, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request) == 0;
    } else {
      ipv6_mreq request{};
      request.ipv6mr_multiaddr = address.v6.sin6_addr;
      request.ipv6mr_interface = interface;
      good = good && set(descriptor, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0) &&
             setsockopt(descriptor, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request) == 0;
    }
    if (!good) *error = errno;
  }
  if (good) return descriptor;
  close(descriptor);
  return -1;
}

bool configure_udp_socket(int descriptor, bool ipv4, int* error) {
  // With DF, an unconnected socket sends identification 0 (or k for segment k).
  bool good = ipv4 ? set(descriptor, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
                   : set(descriptor, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  const int descriptor_flags = fcntl(descriptor, F_GETFD);
  const int status_flags = fcntl(descriptor, F_GETFL);
  good = good && descriptor_flags >= 0 && status_flags >= 0 &&
         fcntl(descriptor, F_SETFD, descriptor_flags | FD_CLOEXEC) == 0 &&
         fcntl(descriptor, F_SETFL, status_flags | O_NONBLOCK) == 0;
  if (!good) {
    *error = errno;
    return false;
  }
  if (!ipv4) {
    set(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 1);  // refused once bound, but set by then
    set(descriptor, SOL_UDP, UDP_NO_CHECK6_RX, 1);  // NICs send RoCEv2 without a UDP checksum
  }
  set(descriptor, SOL_UDP, UDP_GRO, 1);  // without it packets come one by one
  if (!set(descriptor, SOL_SOCKET, SO_RCVBUFFORCE, kReceiveBuffer)) {
    set(descriptor, SOL_SOCKET, SO_RCVBUF, kReceiveBuffer);
  }
  if (!set(descriptor, SOL_SOCKET, SO_SNDBUFFORCE, kSendBuffer)) {
    set(descriptor, SOL_SOCKET, SO_SNDBUF, kSendBuffer);
  }
  return true;
}

// Bytes charged to the receive buffer, measured on Linux 6.18: 832 for a packet of up to 80 bytes
// that travels alone, 1,280 for one of 280, 2,304 for 1,040, 8,448 for 4,112; in super-packets 1.01
// to 1.2 for each byte. UDP may hold back a quarter of the buffer that was freed already. Hence the
// window is half of 3/4 of the buffer; the other half is for overhead, beside what window_charge()
// adds to short packets.
std::size_t window_of(int descriptor) {
  int buffer = 0;
  socklen_t length = sizeof buffer;
  if (getsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &buffer, &length) != 0) buffer = 0;
  return std::max<std::size_t>(static_cast<std::size_t>(std::max(buffer, 0)) / 8 * 3,
                               4 * window_charge(kMaxPacket));
}

}  // namespace ferry::port
