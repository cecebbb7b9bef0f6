#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

// Unaligned big-endian access, the byte order of every header on the wire.
namespace ferry::wire {

template <std::unsigned_integral T>
constexpr T byte_swap(T value) {
  if constexpr (std::endian::native == std::endian::big || sizeof(T) == 1) {
    return value;
  } else if constexpr (sizeof(T) == 2) {
    return __builtin_bswap16(value);
  } else if constexpr (sizeof(T) == 4) {
    return __builtin_bswap32(value);
  } else {
    return __builtin_bswap64(value);
  }
}

template <std::unsigned_integral T>
void store_be(std::byte* to, T value) {
  value = byte_swap(value);
  std::memcpy(to, &value, sizeof value);
}

template <std::unsigned_integral T>
T load_be(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return byte_swap(value);
}

}  // namespace ferry::wire
