#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "port/endpoint.h"
#include "rnic/system/settings.h"

namespace ferry::rnic {

// A network interface that can be a device.
struct Netdev {
  std::string name;
  unsigned index = 0;
  unsigned mtu = 1500;     // bytes, from the IP header on
  std::uint64_t guid = 0;  // EUI-64 of its MAC address, host byte order
  bool loopback = false;
  // The GID table, with at most one address of each family, IPv4 first; and the same together with
  // the families that the settings leave out of the table.
  std::vector<port::Address> addresses, all_addresses;
};

// The interfaces that become devices, in this order. Each is up and has an address of a family that
// the settings allow; IPv6 link-local addresses do not count. They are those that the settings
// name; if the settings name none, all but the loopback interface; and if there is no other, that
// one.
std::vector<Netdev> list_netdevs(const Settings& settings);

// Bytes beside the payload that a packet has at most: IPv6, UDP, BTH, the longest extension headers,
// ICRC.
inline constexpr unsigned kMostHeaders = 100;

inline constexpr std::uint32_t kLeastMtu = 256, kMostMtu = 4096;  // InfiniBand's

// The largest InfiniBand MTU (256 to 4096 bytes of payload) whose packets fit the interface; 256 if
// none does. `netdev_mtu`: bytes, from the IP header on.
std::uint32_t payload_mtu(unsigned netdev_mtu);

}  // namespace ferry::rnic
