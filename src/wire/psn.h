#pragma once

#include <cstdint>

// Packet sequence numbers have 24 bits and are compared in a circle (IBTA vol. 1 clause 9.7.1). Of
// two PSNs, the one ahead by less than 2^23 is the later one.
namespace ferry::wire {

inline constexpr std::uint32_t kPsnMask = 0xFFFFFF;

constexpr std::uint32_t psn_add(std::uint32_t psn, std::uint32_t n) {
  return (psn + n) & kPsnMask;
}
constexpr std::uint32_t psn_sub(std::uint32_t psn, std::uint32_t n) {
  return (psn - n) & kPsnMask;
}

// Signed distance from `b` to `a`, in -2^23 .. 2^23 - 1; negative when `a` is earlier.
constexpr std::int32_t psn_diff(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>((a - b) << 8) >> 8;
}
constexpr bool psn_before(std::uint32_t a, std::uint32_t b) {
  return psn_diff(a, b) < 0;
}

}  // namespace ferry::wire
