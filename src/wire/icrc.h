#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "port/endpoint.h"

// The invariant CRC of RoCEv2 (IBTA annex A17.3.3; CRC-32 as in Ethernet) over 8 bytes of ones, the
// IP header and UDP header with their variable fields masked to ones, and the packet from BTH (its
// fecn/becn/reserved byte masked) to the pad. For IPv4 the IP header is taken as version 4, IHL 5,
// DF set, and the given identification, for IPv6 as version 6, flow label masked, next header UDP.
namespace ferry::wire {

// Computes the ICRC of `packet` (BTH .. ICRC) and writes it to its last four bytes.
void seal(std::span<std::byte> packet, const port::Endpoint& from, const port::Endpoint& to,
          std::uint16_t ip_identification);

// True when the ICRC is right for `ip_identification`, for 0, or (IPv4 only) for some 16-bit
// identification, which is solved for: sockets do not show that field. Never reads outside
// `packet`; packets shorter than a BTH and an ICRC are wrong.
bool verify(std::span<const std::byte> packet, const port::Endpoint& from, const port::Endpoint& to,
            std::uint16_t ip_identification);

}  // namespace ferry::wire
