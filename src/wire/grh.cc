#include "wire/grh.h"

#include <cstring>

#include "wire/big_endian.h"
#include "wire/header.h"

namespace ferry::wire {
namespace {

constexpr std::byte kHopLimit{64};
constexpr std::byte kUdp{17};
constexpr std::size_t kIpv4At = kGrhSize - kIpv4Size;

std::uint16_t checksum(const std::byte* header) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kIpv4Size; i += 2) sum += load_be<std::uint16_t>(header + i);
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

bool starts_as_ipv6(std::span<const std::byte, kGrhSize> grh) {
  return grh[0] >> 4 == std::byte{6};
}

// What stands in front of an IPv4 header may look like an IPv6 header; then the checksum decides, which is
// 0 over a header with its own. Else it may be wrong: rdma_rxe sets none in datagrams to its own host.
// RoCEv2 allows no options (annex A17.4.5.2).
bool is_ipv4(std::span<const std::byte, kGrhSize> grh) {
  return grh[kIpv4At] == std::byte{0x45} &&
         (!starts_as_ipv6(grh) || checksum(grh.data() + kIpv4At) == 0);
}

port::Address ipv4_at(const std::byte* at) {
  return port::Address::from_ipv4(load_be<std::uint32_t>(at));
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
  at += kIpv4At;
  at[0] = std::byte{0x45};
  store_be(at + 2, static_cast<std::uint16_t>(kIpv4Size + udp));
  at[6] = std::byte{0x40};  // DF
  at[8] = kHopLimit;
  at[9] = kUdp;
  std::memcpy(at + 12, source.bytes.data() + 12, 4);
  std::memcpy(at + 16, destination.bytes.data() + 12, 4);
  store_be(at + 10, checksum(at));
}

std::optional<GrhAddresses> parse_grh(std::span<const std::byte, kGrhSize> grh) {
  const std::byte* const at = grh.data();
  if (is_ipv4(grh)) return GrhAddresses{ipv4_at(at + kIpv4At + 12), ipv4_at(at + kIpv4At + 16)};
  if (!starts_as_ipv6(grh)) return std::nullopt;
  GrhAddresses addresses;
  std::memcpy(addresses.source.bytes.data(), at + 8, 16);
  std::memcpy(addresses.destination.bytes.data(), at + 24, 16);
  return addresses;
}

void readdress_grh(const GrhAddresses& addresses, std::span<std::byte, kGrhSize> grh) {
  std::byte* const at = grh.data();
  if (!is_ipv4(grh)) {
    std::memcpy(at + 8, addresses.source.bytes.data(), 16);
    std::memcpy(at + 24, addresses.destination.bytes.data(), 16);
    return;
  }
  std::byte* const ipv4 = at + kIpv4At;
  std::memcpy(ipv4 + 12, addresses.source.bytes.data() + 12, 4);
  std::memcpy(ipv4 + 16, addresses.destination.bytes.data() + 12, 4);
  store_be(ipv4 + 10, std::uint16_t{0});
  store_be(ipv4 + 10, checksum(ipv4));
}

}  // namespace ferry::wire
