#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "port/endpoint.h"

// The global route header that a UD receive buffer begins with (IBTA vol. 1 clause 8.3, annex
// A17.4.5.1). Over UDP it is the IP header: an IPv6 header fills it, an IPv4 header is its last 20
// bytes and the first 20 are zero, as with other RNICs. A socket shows no IP header, so Ferry makes
// one up: TOS, traffic class and flow label are 0, TTL and hop limit 64.
namespace ferry::wire {

inline constexpr std::size_t kGrhSize = 40;

// `length`: bytes of the packet from BTH to ICRC. Both addresses are of one family.
void encode_grh(const port::Address& source, const port::Address& destination, std::size_t length,
                std::span<std::byte, kGrhSize> out);

struct GrhAddresses {
  port::Address source, destination;
};
// Those of the header of any RNIC. Nothing: it is no header of IPv6, nor one of IPv4.
std::optional<GrhAddresses> parse_grh(std::span<const std::byte, kGrhSize> grh);
// Puts other addresses, of the same family, into a header that parse_grh() takes, with the checksum.
void readdress_grh(const GrhAddresses& addresses, std::span<std::byte, kGrhSize> grh);

}  // namespace ferry::wire
