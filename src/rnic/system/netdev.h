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
  unsigned mtu = 1500;     // bytes of IP
  std::uint64_t guid = 0;  // EUI-64 of its MAC address, host byte order
  bool loopback = false;
  // At most one of each family, IPv4 first: the GID table, and all that the interface has, of the
  // families too that the settings leave out of the table.
  std::vector<port::Address> addresses, all_addresses;
};

// The interfaces that the settings allow and that have an address, in the order of the devices: all
// that are up but the loopback interface, which serves only where there is nothing else or the
// settings name it. Link-local addresses do not count.
std::vector<Netdev> list_netdevs(const Settings& settings);

// The largest InfiniBand MTU (bytes of payload) whose packets fit the interface.
std::uint32_t payload_mtu(unsigned netdev_mtu);

}  // namespace ferry::rnic
