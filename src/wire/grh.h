#pragma once

#include <cstddef>
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

}  // namespace ferry::wire
