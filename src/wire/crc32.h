#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

// CRC-32 of Ethernet (IEEE 802.3, polynomial 0x04C11DB7, bits reflected), as the ICRC uses it.
//
// In the reflected form bit 31 is the coefficient of x^0 and bit 0 that of x^31; values are
// polynomials modulo P.
namespace ferry::wire {

inline constexpr std::uint32_t kCrc32Poly = 0xEDB88320;
inline constexpr std::uint32_t kCrc32Init = 0xFFFFFFFF;

// Takes `bytes` into a running state. A CRC starts with kCrc32Init and ends with the complement of
// the state.
std::uint32_t crc32_update(std::uint32_t state, std::span<const std::byte> bytes);

// Does the same by tables alone: for processors without carry-less multiplication, and for the last
// bytes after folding.
std::uint32_t crc32_update_by_table(std::uint32_t state, const std::byte* bytes, std::size_t size);

// a · b mod P.
constexpr std::uint32_t crc32_multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (int i = 0; i < 32; ++i) {
    product ^= b & (0u - (a >> 31));
    a <<= 1;
    b = (b >> 1) ^ (kCrc32Poly & (0u - (b & 1)));
  }
  return product;
}

// x^n mod P; x has the order 2^32 - 1, so x^-n is x^(2^32 - 1 - n).
constexpr std::uint32_t crc32_x_to(std::uint32_t n) {
  std::uint32_t result = 0x80000000;  // x^0
  std::uint32_t square = 0x40000000;  // x^1
  for (; n != 0; n >>= 1) {
    if (n & 1) result = crc32_multiply(result, square);
    square = crc32_multiply(square, square);
  }
  return result;
}

}  // namespace ferry::wire
