#pragma once

#include <infiniband/verbs.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "port/endpoint.h"

namespace ferry::rnic {

// Limits that are reported and enforced. Those of QPs, SRQ entries, MRs and MWs are in their
// classes.
inline constexpr std::size_t kMaxPds = 1 << 15;
inline constexpr std::size_t kMaxAhs = 1 << 16;
inline constexpr std::size_t kMaxCqs = 1 << 16;
inline constexpr std::size_t kMaxSrqs = 1 << 16;
inline constexpr std::size_t kMaxXrcds = 1 << 12;

// Converts 256, 512, … 4096 bytes of payload to IBV_MTU_256 … IBV_MTU_4096.
inline ibv_mtu mtu_code(std::uint32_t bytes) {
  return static_cast<ibv_mtu>(std::countr_zero(bytes) - 7);
}

struct Netdev;

// What the port of a device on this interface tells. `max_mtu`: bytes of payload; `gids`: how many
// GIDs the device has.
void describe_port(const Netdev& netdev, std::uint32_t max_mtu, std::size_t gids,
                   ibv_port_attr* out);
void describe_gid(const Netdev& netdev, const port::Address& address, unsigned index,
                  ibv_gid_entry* out);

}  // namespace ferry::rnic
