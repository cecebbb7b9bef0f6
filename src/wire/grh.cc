#include "wire/grh.h"

#include <cstring>

#include "wire/big_endian.h"

namespace ferry::wire {
namespace {

constexpr std::byte kHopLimit{64};
constexpr std::byte kUdp{17};
constexpr std::size_t kIpv4Size = 20;
constexpr std::size_t kUdpSize = 8;

std::uint16_t checksum(const std::byte* header) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kIpv4Size; i += 2) sum += load_be<std::uint16_t>(header + i);
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

}  // namespace

void encode_grh(const port::Address& source, const port::Address& destination, std::size_t length,
                std::span<std::byte, kGrhSize> out) {
  std::byte* at = out.data();
  std::memset(at, 0, kGrhSize);
  const std::size_t udp = kUdpSize + length;
  if (!source.is_ipv4()) {
    at[0] = std::byte{0x60};
    store_be(at + 4, static_cast<std::uint16_t>(udp));
    at[6] = kUdp;
    at[7] = kHopLimit;
    std::memcpy(at + 8, source.bytes.data(), 16);
    std::memcpy(at + 24, destination.bytes.data(), 16);
    return;
  }
  at += kGrhSize - kIpv4Size;
  at[0] = std::byte{0x45};
  store_be(at + 2, static_cast<std::uint16_t>(kIpv4Size + udp));
  at[6] = std::byte{0x40};  // DF
  at[8] = kHopLimit;
  at[9] = kUdp;
  std::memcpy(at + 12, source.bytes.data() + 12, 4);
  std::memcpy(at + 16, destination.bytes.data() + 12, 4);
  store_be(at + 10, checksum(at));
}

}  // namespace ferry::wire
