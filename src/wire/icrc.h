#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "port/endpoint.h"

// The invariant CRC of RoCEv2 (IBTA annex A17.3.3; CRC-32 as in Ethernet) over 8 bytes of ones, the
// IP header and UDP header with their variable fields masked to ones, and the packet from BTH (its
// fecn/becn/reserved byte masked) to the pad. The IPv4 header is assumed to have IHL 5, DF set and
// the given identification; the IPv6 header no extension headers.
namespace ferry::wire {

// Computes the ICRC of `packet` (BTH .. ICRC) and writes it to its last four bytes.
void seal(std::span<std::byte> packet, const port::Endpoint& from, const port::Endpoint& to,
          std::uint16_t ip_identification);

// True when the ICRC is right for `ip_identification` or (IPv4 only) for any other: sockets do not
// show that field, so verify() solves for it. False for lengths that no packet has (less than BTH
// and ICRC, more than port::kMaxPacket, no multiple of 4), and for addresses of different families.
bool verify(std::span<const std::byte> packet, const port::Endpoint& from, const port::Endpoint& to,
            std::uint16_t ip_identification);

}  // namespace ferry::wire
