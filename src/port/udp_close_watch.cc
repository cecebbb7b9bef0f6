#include "port/udp_close_watch.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ferry::port {

void UdpCloseWatch::open() {
  if (socket_ >= 0) return;
  socket_ = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
  if (socket_ < 0) return;
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = 1u << (SKNLGRP_INET_UDP_DESTROY - 1) | 1u << (SKNLGRP_INET6_UDP_DESTROY - 1);
  if (::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) close();
}

void UdpCloseWatch::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool UdpCloseWatch::closed(std::uint16_t udp_port) {
  bool result = false;
  alignas(nlmsghdr) std::array<char, 4096> buffer;
  while (socket_ >= 0) {
    const ssize_t size = ::recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0) {
      if (errno == EINTR) continue;
      // The socket had no room for all notices, so any port may be among those that are lost.
      result |= errno == ENOBUFS;
      if (errno == ENOBUFS) continue;
      break;
    }
    auto left = static_cast<unsigned>(size);
    for (auto* m = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(m, left);
         m = NLMSG_NEXT(m, left)) {
      if (m->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) continue;
      const auto* socket = static_cast<const inet_diag_msg*>(NLMSG_DATA(m));
      result |= ntohs(socket->id.idiag_sport) == udp_port;
    }
  }
  return result;
}

}  // namespace ferry::port
