#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ferry::wire {

// SipHash-2-4 with a 128-bit key and a 64-bit result (Aumasson and Bernstein, INDOCRYPT 2012). k0
// is the first half of the key.
std::uint64_t siphash24(std::uint64_t k0, std::uint64_t k1, std::span<const std::byte> data);

}  // namespace ferry::wire
