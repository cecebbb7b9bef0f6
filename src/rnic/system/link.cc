#include "rnic/system/link.h"

#include <linux/ethtool.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ferry::rnic {
namespace {

constexpr std::uint8_t kPhysDisabled = 3, kPhysLinkUp = 5;  // phys_state
constexpr std::uint8_t kWidth1x = 1, kWidth4x = 2;          // active_width
// active_speed, of one lane: 2.5, 5, 10.3, 25, 50 and 100 Gbit/s
constexpr std::uint8_t kSdr = 1, kDdr = 2, kFdr10 = 8, kEdr = 32, kHdr = 64, kNdr = 128;

struct Rate {
  std::uint32_t megabits;  // up to this speed of the interface
  std::uint8_t width, speed;
};
// How a speed translates to active_width and active_speed, as in the kernel's RoCE devices.
constexpr std::array kRates = {Rate{1'000, kWidth1x, kSdr},     Rate{10'000, kWidth1x, kFdr10},
                               Rate{20'000, kWidth4x, kDdr},    Rate{25'000, kWidth1x, kEdr},
                               Rate{40'000, kWidth4x, kFdr10},  Rate{50'000, kWidth1x, kHdr},
                               Rate{100'000, kWidth4x, kEdr},   Rate{200'000, kWidth4x, kHdr},
                               Rate{UINT32_MAX, kWidth4x, kNdr}};

bool ask(int socket, unsigned long what, const std::string& netdev, ifreq* request) {
  std::strncpy(request->ifr_name, netdev.c_str(), sizeof request->ifr_name - 1);
  return ioctl(socket, what, request) == 0;
}

template <typename Command>
bool ask_ethtool(int socket, const std::string& netdev, Command* command) {
  ifreq request{};
  request.ifr_data = reinterpret_cast<char*>(command);
  return ask(socket, SIOCETHTOOL, netdev, &request);
}

// Whether the interface is not up, or has no carrier, as the kernel's RoCE devices see it.
// IFF_RUNNING follows the carrier later, on a busy host by seconds. False also when the kernel does
// not tell.
bool is_down(int socket, const std::string& netdev) {
  ifreq flags{};
  if (!ask(socket, SIOCGIFFLAGS, netdev, &flags)) return false;
  if ((flags.ifr_flags & IFF_UP) == 0) return true;
  ethtool_value carrier{.cmd = ETHTOOL_GLINK, .data = 0};
  if (ask_ethtool(socket, netdev, &carrier)) return carrier.data == 0;
  return (flags.ifr_flags & IFF_RUNNING) == 0;
}

}  // namespace

void describe_link(const std::string& netdev, ibv_port_attr* out) {
  out->state = IBV_PORT_ACTIVE;
  out->phys_state = kPhysLinkUp;
  out->active_width = kWidth4x;
  out->active_speed = kEdr;  // 100 Gbit/s; UDP over one core carries about half of that
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return;
  if (is_down(socket, netdev)) {
    out->state = IBV_PORT_DOWN;
    out->phys_state = kPhysDisabled;
  }
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  if (ask_ethtool(socket, netdev, &settings)) {
    const std::uint32_t megabits = ethtool_cmd_speed(&settings);
    for (const Rate& rate : kRates) {
      if (megabits == 0 || megabits == static_cast<std::uint32_t>(SPEED_UNKNOWN)) break;
      if (megabits > rate.megabits) continue;
      out->active_width = rate.width;
      out->active_speed = rate.speed;
      break;
    }
  }
  close(socket);
}

void LinkWatch::open() {
  socket_ = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (socket_ < 0) return;
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    close();
    return;
  }
  look_ = known_;
  if (!known_) up_ = link_is_up();
  known_ = true;
}

void LinkWatch::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool LinkWatch::link_is_up() const {
  ibv_port_attr port{};
  describe_link(netdev_, &port);
  return port.state == IBV_PORT_ACTIVE;
}

bool LinkWatch::changed(bool* up) {
  if (socket_ < 0) return false;
  // The messages may be out of date, so they only say that it is time to look. So does an overrun
  // (ENOBUFS).
  std::byte nothing;
  for (;;) {
    if (recv(socket_, &nothing, sizeof nothing, MSG_TRUNC) < 0) {
      if (errno == ENOBUFS) look_ = true;
      if (errno != ENOBUFS && errno != EINTR) break;
    } else {
      look_ = true;
    }
  }
  if (!std::exchange(look_, false)) return false;
  *up = link_is_up();
  return std::exchange(up_, *up) != *up;
}

}  // namespace ferry::rnic
