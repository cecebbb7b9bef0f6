#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/guest/nics.h"

namespace ferry::host {

class Netlink;

// An address of an interface, or a route over it.
struct IpItem {
  std::string key;  // in words of ip(8); two with the same are the same to the kernel
  std::vector<std::uint8_t>
      message;  // the kernel's own of it: ifaddrmsg or rtmsg, and attributes (rtnetlink(7))
  bool operator==(const IpItem& other) const { return key == other.key; }
};

// Those that somebody has made, not those that the kernel makes by itself. Throw Failure.
std::vector<IpItem> addresses_of(Netlink& kernel, const Nic& nic);
// First those without a gateway: gateways are reached by them.
std::vector<IpItem> routes_of(Netlink& kernel, const Nic& nic);

// Give one to an interface. `former`: the name of the interface that had it. Return why the kernel refuses, one line;
// empty: the interface has it.
std::string give_address(Netlink& kernel, const IpItem& address, const Nic& to,
                         const std::string& former);
std::string give_route(Netlink& kernel, const IpItem& route, const Nic& to);

}  // namespace ferry::host
