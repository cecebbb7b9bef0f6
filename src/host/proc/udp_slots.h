#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <istream>
#include <set>
#include <vector>

#include "port/endpoint.h"

// The QPN slots (port/slot.h) of our RNICs in a process, as the kernel tells: a slot of an address is a UDP port, which
// one process alone can have. A device of the kernel with the same address gives its QPs any numbers, also those of
// slots.
namespace ferry::host {

struct UdpSlot {
  port::Address address;
  std::uint32_t slot = 0;
  auto operator<=>(const UdpSlot&) const = default;
};

// Those to which UDP sockets of the process are bound, of addresses that this host has. Sockets of another network
// namespace do not count: addresses there are others'. None when the process has ended.
std::vector<UdpSlot> udp_slots_of(pid_t pid);

// Reads /proc/net/udp or /proc/net/udp6. Only sockets with these inodes count; malformed lines do not.
std::vector<UdpSlot> parse_udp_slots(std::istream& table, const std::set<std::uint64_t>& inodes);

}  // namespace ferry::host
