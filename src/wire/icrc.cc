#include "wire/icrc.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "port/port.h"
#include "wire/big_endian.h"
#include "wire/crc32.h"
#include "wire/header.h"

namespace ferry::wire {
namespace {

constexpr std::byte kOnes{0xFF};
constexpr std::size_t kLrhSize = 8;  // a masked local route header, which RoCEv2 does not have
constexpr std::byte kUdpProtocol{17};

// The state after the masked headers: local route header, IP, UDP, BTH.
std::uint32_t state_after_headers(std::span<const std::byte> packet, const port::Endpoint& from,
                                  const port::Endpoint& to, std::uint16_t ip_identification) {
  std::byte masked[kLrhSize + kIpv6Size + kUdpSize + kBthSize];
  std::fill_n(masked, kLrhSize, kOnes);
  std::byte* at = masked + kLrhSize;
  const auto udp_length = static_cast<std::uint16_t>(kUdpSize + packet.size());
  if (to.address.is_ipv4()) {
    at[0] = std::byte{0x45};
    at[1] = kOnes;  // type of service
    store_be(at + 2, static_cast<std::uint16_t>(kIpv4Size + udp_length));
    store_be(at + 4, ip_identification);
    store_be(at + 6, std::uint16_t{0x4000});  // don't fragment
    at[8] = kOnes;                            // time to live
    at[9] = kUdpProtocol;
    at[10] = at[11] = kOnes;  // checksum
    std::memcpy(at + 12, from.address.bytes.data() + 12, 4);
    std::memcpy(at + 16, to.address.bytes.data() + 12, 4);
    at += kIpv4Size;
  } else {
    at[0] = std::byte{0x6F};
    at[1] = at[2] = at[3] = kOnes;  // traffic class, flow label
    store_be(at + 4, udp_length);
    at[6] = kUdpProtocol;
    at[7] = kOnes;  // hop limit
    std::memcpy(at + 8, from.address.bytes.data(), 16);
    std::memcpy(at + 24, to.address.bytes.data(), 16);
    at += kIpv6Size;
  }
  store_be(at, from.udp_port);
  store_be(at + 2, to.udp_port);
  store_be(at + 4, udp_length);
  at[6] = at[7] = kOnes;  // checksum
  at += kUdpSize;
  std::memcpy(at, packet.data(), kBthSize);
  at[4] = kOnes;  // fecn, becn, reserved
  at += kBthSize;
  return crc32_update(kCrc32Init, {masked, at});
}

std::uint32_t icrc(std::span<const std::byte> packet, const port::Endpoint& from,
                   const port::Endpoint& to, std::uint16_t ip_identification) {
  const std::uint32_t state = state_after_headers(packet, from, to, ip_identification);
  return ~crc32_update(state, packet.subspan(kBthSize, packet.size() - kBthSize - kIcrcSize));
}

// The CRC is linear: the CRCs of two packets whose identifications differ by `d` differ by d · x^n,
// where n is 32 plus the number of bits that follow the identification in the CRC's input.
// Multiplying by x^-n gives d back, and only a polynomial of degree below 16 is an identification.
// Entry i is x^-n for a packet of 4·i bytes from BTH to ICRC.
constexpr auto make_inverse_powers() {
  std::array<std::uint32_t, port::kMaxPacket / 4 + 1> powers{};
  // n without the packet: from the identification's end to the BTH, less the ICRC, plus 32.
  constexpr std::uint32_t kBitsAfter = 8 * (kIpv4Size - 6 + kUdpSize - kIcrcSize) + 32;
  constexpr std::uint32_t kWord = crc32_x_to(0xFFFFFFFF - 32);
  powers[0] = crc32_x_to(0xFFFFFFFF - kBitsAfter);
  for (std::size_t i = 1; i < powers.size(); ++i) {
    powers[i] = crc32_multiply(powers[i - 1], kWord);
  }
  return powers;
}
constexpr auto kInversePowers = make_inverse_powers();

// Whether another identification explains the difference. In the reflected form, x^0 .. x^15 are
// the upper 16 bits.
bool is_identification(std::uint32_t crc_difference, std::size_t packet_size) {
  return (crc32_multiply(crc_difference, kInversePowers[packet_size / 4]) & 0xFFFF) == 0;
}

}  // namespace

void seal(std::span<std::byte> packet, const port::Endpoint& from, const port::Endpoint& to,
          std::uint16_t ip_identification) {
  const std::uint32_t value = icrc(packet, from, to, ip_identification);
  // The ICRC is the one field that is sent with its low byte first (annex A17.3.3, as Ethernet's).
  std::memcpy(packet.data() + packet.size() - kIcrcSize, &value, kIcrcSize);
}

bool verify(std::span<const std::byte> packet, const port::Endpoint& from, const port::Endpoint& to,
            std::uint16_t ip_identification) {
  if (packet.size() < kBthSize + kIcrcSize || packet.size() > port::kMaxPacket ||
      packet.size() % 4 != 0 || from.address.is_ipv4() != to.address.is_ipv4()) {
    return false;
  }
  std::uint32_t received;
  std::memcpy(&received, packet.data() + packet.size() - kIcrcSize, kIcrcSize);
  const std::uint32_t difference = received ^ icrc(packet, from, to, ip_identification);
  if (difference == 0) return true;
  return to.address.is_ipv4() && is_identification(difference, packet.size());
}

}  // namespace ferry::wire
