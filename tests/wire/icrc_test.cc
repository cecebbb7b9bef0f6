#include "wire/icrc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "hex.h"
#include "port/port.h"

namespace ferry::wire {
namespace {

using port::Address;
using port::Endpoint;

const Endpoint kA{Address::from_ipv4(0x0A000001), 4791};
const Endpoint kB{Address::from_ipv4(0x0A000002), 61441};

Endpoint ipv6(std::uint8_t last, std::uint16_t udp_port) {
  Endpoint endpoint;
  endpoint.address.bytes[0] = std::byte{0xFD};
  endpoint.address.bytes[15] = std::byte{last};
  endpoint.udp_port = udp_port;
  return endpoint;
}

std::uint32_t bitwise_crc32(std::span<const std::byte> bytes) {
  std::uint32_t state = 0xFFFFFFFF;
  for (std::byte byte : bytes) {
    state ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = state & 1 ? state >> 1 ^ 0xEDB88320 : state >> 1;
  }
  return ~state;
}

std::vector<std::byte> random_packet(std::mt19937_64& random, std::size_t size) {
  std::vector<std::byte> packet(size);
  for (auto& byte : packet) byte = static_cast<std::byte>(random());
  return packet;
}

// A congestion notification of a ConnectX-4 Lx as captured (published in Scapy's RoCE
// tests): 10.0.17.1 to 10.0.18.1, source port 0, BECN set, identification 0x718c.
TEST(Icrc, PacketCapturedFromAConnectX4) {
  const Endpoint from{Address::from_ipv4(0x0A001101), 0};
  const Endpoint to{Address::from_ipv4(0x0A001201), 4791};
  const auto captured =
      from_hex("8100ffff 40000118 00000000 00000000 00000000 00000000 00000000 82fd002a");
  EXPECT_TRUE(verify(captured, from, to, 0x718C));
  EXPECT_TRUE(verify(captured, from, to, 0)) << "the identification is solved for";
  auto sealed = captured;
  std::fill(sealed.end() - 4, sealed.end(), std::byte{0});
  seal(sealed, from, to, 0x718C);
  EXPECT_EQ(sealed, captured);
}

// A UC SEND Only over a loop, 192.168.0.7 to itself, identification 1144 (same source).
TEST(Icrc, PacketCapturedOverALoop) {
  const Endpoint from{Address::from_ipv4(0xC0A80007), 49152};
  const Endpoint to{Address::from_ipv4(0xC0A80007), 4791};
  const auto captured = from_hex(
      "2460ffff 000000d3 00cf1710"
      "4630818be28935d90e9a95505401be885e500000"
      "78f353f3");
  EXPECT_TRUE(verify(captured, from, to, 1144));
  EXPECT_TRUE(verify(captured, from, to, 7));
}

// The masked bytes written out by hand, summed bit by bit.
TEST(Icrc, Ipv4IsTheCrcOfTheMaskedBytes) {
  auto packet = from_hex("0460ffff 80000011 8000002a 61620000 00000000");
  seal(packet, kA, kB, 0x0005);
  const auto masked = from_hex(
      "ffffffffffffffff"                 // where a local route header would be
      "45 ff 0030 0005 4000 ff 11 ffff"  // version, TOS, length 48, id, DF, TTL, UDP, checksum
      "0a000001 0a000002"                //
      "12b7 f001 001c ffff"              // ports, length 28, checksum
      "0460ffff ff000011 8000002a 61620000");
  const std::uint32_t crc = bitwise_crc32(masked);
  const std::vector<std::byte> expected = {
      static_cast<std::byte>(crc), static_cast<std::byte>(crc >> 8),
      static_cast<std::byte>(crc >> 16), static_cast<std::byte>(crc >> 24)};
  EXPECT_EQ(std::vector(packet.end() - 4, packet.end()), expected);
}

TEST(Icrc, Ipv6IsTheCrcOfTheMaskedBytes) {
  auto packet = from_hex("0460ffff 00000011 8000002a 61620000 00000000");
  seal(packet, ipv6(1, 4791), ipv6(2, 61441), 99);
  const auto masked = from_hex(
      "ffffffffffffffff"
      "6fffffff 001c 11 ff"  // version, class and flow, length 28, UDP, hop limit
      "fd000000000000000000000000000001"
      "fd000000000000000000000000000002"
      "12b7 f001 001c ffff"
      "0460ffff ff000011 8000002a 61620000");
  const std::uint32_t crc = bitwise_crc32(masked);
  const std::vector<std::byte> expected = {
      static_cast<std::byte>(crc), static_cast<std::byte>(crc >> 8),
      static_cast<std::byte>(crc >> 16), static_cast<std::byte>(crc >> 24)};
  EXPECT_EQ(std::vector(packet.end() - 4, packet.end()), expected);
  EXPECT_TRUE(verify(packet, ipv6(1, 4791), ipv6(2, 61441), 0)) << "there is no identification";
}

TEST(Icrc, SolvesForEveryIdentification) {
  std::mt19937_64 random(1);
  for (std::size_t size : {16u, 20u, 64u, 1040u, 4112u, 4224u}) {
    auto packet = random_packet(random, size);
    for (std::uint32_t id = 0; id < 128; ++id) {
      seal(packet, kA, kB, static_cast<std::uint16_t>(id));
      ASSERT_TRUE(verify(packet, kA, kB, static_cast<std::uint16_t>(id)));
      ASSERT_TRUE(verify(packet, kA, kB, 0)) << id << " in " << size << " bytes";
      ASSERT_TRUE(verify(packet, kA, kB, 0xBEEF));
    }
  }
  for (int i = 0; i < 2000; ++i) {
    auto packet = random_packet(random, 16 + 4 * (random() % 1053));
    seal(packet, kA, kB, static_cast<std::uint16_t>(random()));
    ASSERT_TRUE(verify(packet, kA, kB, static_cast<std::uint16_t>(random())));
  }
}

// Solving costs 16 of the 32 bits: one of 65536 random values passes for IPv4.
TEST(Icrc, RandomValuesPassNoOftenerThanTheAlgebraSays) {
  std::mt19937_64 random(2);
  int passed = 0;
  constexpr int kTries = 2'000'000;
  auto packet = random_packet(random, 16);
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t bits = random();
    std::copy_n(reinterpret_cast<const std::byte*>(&bits), 4, packet.end() - 4);
    passed += verify(packet, kA, kB, 0);
  }
  EXPECT_NEAR(passed, kTries / 65536.0, 25);  // 30.5 ± 5.5

  auto other = random_packet(random, 16);
  for (int i = 0; i < kTries / 10; ++i) {
    const std::uint64_t bits = random();
    std::copy_n(reinterpret_cast<const std::byte*>(&bits), 4, other.end() - 4);
    ASSERT_FALSE(verify(other, ipv6(1, 4791), ipv6(2, 4791), 0));
  }
}

TEST(Icrc, EveryFlippedBitIsSeen) {
  std::mt19937_64 random(3);
  auto packet = random_packet(random, 80);
  seal(packet, kA, kB, 3);
  for (std::size_t bit = 0; bit < 8 * packet.size(); ++bit) {
    packet[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    // The byte with FECN, BECN and the reserved bits is not covered.
    EXPECT_EQ(verify(packet, kA, kB, 3), bit / 8 == 4) << bit;
    packet[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
}

TEST(Icrc, AddressesAndPortsAreCovered) {
  std::mt19937_64 random(4);
  auto packet = random_packet(random, 64);
  seal(packet, kA, kB, 0);
  EXPECT_TRUE(verify(packet, kA, kB, 0));
  EXPECT_FALSE(verify(packet, kB, kA, 0));
  EXPECT_FALSE(verify(packet, {Address::from_ipv4(0x0A000003), 4791}, kB, 0));
  EXPECT_FALSE(verify(packet, {kA.address, 4792}, kB, 0));
  EXPECT_FALSE(verify(packet, kA, {kB.address, 61442}, 0));
  EXPECT_FALSE(verify(packet, ipv6(1, 4791), ipv6(2, 61441), 0));
  EXPECT_FALSE(verify(packet, kA, ipv6(2, 61441), 0));
}

TEST(Icrc, WrongSizesAreWrong) {
  std::mt19937_64 random(5);
  for (std::size_t size = 0; size < 64; ++size) {
    auto packet = random_packet(random, size);
    if (size >= 16) seal(packet, kA, kB, 0);
    EXPECT_EQ(verify(packet, kA, kB, 0), size >= 16 && size % 4 == 0) << size;
  }
  EXPECT_FALSE(verify(random_packet(random, port::kMaxPacket + 4), kA, kB, 0));
  EXPECT_FALSE(verify(random_packet(random, 65508), kA, kB, 0));
}

}  // namespace
}  // namespace ferry::wire
