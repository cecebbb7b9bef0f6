#include "gsi/wire_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// Needs the headers above.
#include <linux/errqueue.h>

#include <cerrno>
#include <utility>

#include "gsi/packet.h"
#include "port/slot.h"
#include "port/udp_socket.h"

namespace ferry::gsi {

std::optional<WireSocket> WireSocket::open(const port::Address& from, int* error) {
  const std::uint32_t scope = port::scope_of(from);
  const int descriptor = port::open_udp_socket({from, 0}, scope, error);
  if (descriptor < 0) return std::nullopt;
  port::SocketAddress address;
  socklen_t length = sizeof address;
  if (::getsockname(descriptor, &address.any, &length) != 0) {
    *error = errno;
    ::close(descriptor);
    return std::nullopt;
  }
  const int on = 1;
  if (from.is_ipv4()) {
    ::setsockopt(descriptor, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
  } else {
    ::setsockopt(descriptor, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on);
  }
  return WireSocket(descriptor, port::from_socket_address(address), scope);
}

WireSocket::WireSocket(WireSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      local_(other.local_),
      scope_(other.scope_),
      psn_(other.psn_) {}

WireSocket& WireSocket::operator=(WireSocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  local_ = other.local_;
  scope_ = other.scope_;
  psn_ = other.psn_;
  return *this;
}

WireSocket::~WireSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void WireSocket::send(const cm::Mad& mad, const port::Address& to) {
  const port::Endpoint peer{to, port::kRoceUdpPort};
  const auto packet = make_packet(mad, local_, peer, psn_++);
  port::SocketAddress address;
  const socklen_t length = port::to_socket_address(peer, scope_, &address);
  // sendto() reports an earlier ICMP error, whichever peer it concerned, and sends nothing: then it
  // is called once more.
  for (int tries = 0; tries < 2; ++tries) {
    if (::sendto(descriptor_, packet.data(), packet.size(), MSG_NOSIGNAL, &address.any, length) >=
            0 ||
        (errno != ECONNREFUSED && errno != EHOSTUNREACH)) {
      return;
    }
  }
}

std::optional<WireSocket::Failure> WireSocket::next_failure() {
  for (;;) {
    port::SocketAddress peer{};
    alignas(cmsghdr) char control[512];
    msghdr message{};
    message.msg_name = &peer;
    message.msg_namelen = sizeof peer;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(descriptor_, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return std::nullopt;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      const bool is_error = (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) ||
                            (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR);
      if (!is_error) continue;
      const auto* report = reinterpret_cast<const sock_extended_err*>(CMSG_DATA(c));
      const auto error = static_cast<int>(report->ee_errno);
      if (error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH)
        return Failure{port::from_socket_address(peer).address, error};
    }
  }
}

}  // namespace ferry::gsi
