#include "wire/grh.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "hex.h"

namespace ferry::wire {
namespace {

std::vector<std::byte> grh(const std::string& source, const std::string& destination,
                           std::size_t length) {
  const auto address = [](const std::string& text) {
    port::Address result;
    const auto bytes = from_hex(text);
    std::copy(bytes.begin(), bytes.end(), result.bytes.begin());
    return result;
  };
  std::array<std::byte, kGrhSize> out;
  out.fill(std::byte{0xEE});
  encode_grh(address(source), address(destination), length, out);
  return {out.begin(), out.end()};
}

// 10.1.2.3 to 192.168.0.9, 64 bytes from BTH to ICRC. The sum of the words of the IP header is
// 0x4500 + 0x5c + 0x4000 + 0x4011 + 0x0a01 + 0x0203 + 0xc0a8 + 0x9 = 0x19222, its checksum ~0x9223.
TEST(Grh, OfIpv4IsTheIpHeaderInTheLastTwentyBytes) {
  EXPECT_EQ(grh("00000000 00000000 0000ffff 0a010203", "00000000 00000000 0000ffff c0a80009", 64),
            from_hex("00000000 00000000 00000000 00000000 00000000"
                     "45 00 005c 0000 4000 40 11 6ddc 0a010203 c0a80009"));
}

// The longest: 4096 bytes of payload, all bits of the addresses set, so that the sum wraps twice.
TEST(Grh, TheChecksumOfIpv4Wraps) {
  EXPECT_EQ(
      grh("00000000 00000000 0000ffff ffffffff", "00000000 00000000 0000ffff ffffffff", 4096 + 24),
      from_hex("00000000 00000000 00000000 00000000 00000000"
               "45 00 1034 0000 4000 40 11 2aba ffffffff ffffffff"));
}

TEST(Grh, OfIpv6IsTheIpHeader) {
  EXPECT_EQ(
      grh("20010db8 00000000 00000000 00000001", "fe800000 00000000 02aabbff fe010203", 64),
      from_hex(
          "60000000 0048 11 40 20010db8000000000000000000000001 fe8000000000000002aabbfffe010203"));
}

port::Address address(const std::string& text) {
  port::Address result;
  const auto bytes = from_hex(text);
  std::copy(bytes.begin(), bytes.end(), result.bytes.begin());
  return result;
}

// With identification, TTL and TOS of another RNIC, and what it has left in the first 20 bytes.
constexpr char kForeign[] =
    "60000000 ffffffff ffffffff ffffffff ffffffff"
    "45 02 005c 1234 4000 3f 11 5ca6 0a010203 c0a80009";

TEST(Grh, OtherAddressesGetTheirChecksumAndAllElseStays) {
  auto bytes = from_hex(kForeign);
  const auto grh = std::span(bytes).first<kGrhSize>();
  auto addresses = parse_grh(grh);
  ASSERT_TRUE(addresses);
  EXPECT_EQ(addresses->source, address("00000000 00000000 0000ffff 0a010203"));
  EXPECT_EQ(addresses->destination, address("00000000 00000000 0000ffff c0a80009"));
  addresses->source = address("00000000 00000000 0000ffff 0a010204");
  readdress_grh(*addresses, grh);
  EXPECT_EQ(bytes, from_hex("60000000 ffffffff ffffffff ffffffff ffffffff"
                            "45 02 005c 1234 4000 3f 11 5ca5 0a010204 c0a80009"));
}

TEST(Grh, OfIpv6IsReaddressedAsWell) {
  auto bytes = from_hex(
      "60300007 0048 11 3f 20010db8000000000000000000000001 fe8000000000000002aabbfffe010203");
  const auto grh = std::span(bytes).first<kGrhSize>();
  auto addresses = parse_grh(grh);
  ASSERT_TRUE(addresses);
  EXPECT_EQ(addresses->source, address("20010db8000000000000000000000001"));
  EXPECT_EQ(addresses->destination, address("fe8000000000000002aabbfffe010203"));
  addresses->destination = address("fe8000000000000002aabbfffe010204");
  readdress_grh(*addresses, grh);
  EXPECT_EQ(
      bytes,
      from_hex(
          "60300007 0048 11 3f 20010db8000000000000000000000001 fe8000000000000002aabbfffe010204"));
}

TEST(Grh, WhatIsNoHeaderIsNone) {
  std::vector<std::byte> bytes(kGrhSize);
  EXPECT_FALSE(parse_grh(std::span(bytes).first<kGrhSize>()));
}

// rdma_rxe gives a datagram of its own host no checksum, and no length.
TEST(Grh, OfIpv4MayHaveNoChecksumWhereItCannotBeTakenForIpv6) {
  auto bytes = from_hex(kForeign);
  bytes[30] = bytes[31] = std::byte{0};
  const auto grh = std::span(bytes).first<kGrhSize>();
  EXPECT_EQ(parse_grh(grh)->source, address("ffffffff ffffffff ffffffff 4502005c"))
      << "it could be one of IPv6";
  std::fill_n(bytes.begin(), 20, std::byte{0});
  const auto addresses = parse_grh(grh);
  ASSERT_TRUE(addresses);
  EXPECT_EQ(addresses->source, address("00000000 00000000 0000ffff 0a010203"));
  readdress_grh(*addresses, grh);
  EXPECT_EQ(bytes, from_hex("00000000 00000000 00000000 00000000 00000000"
                            "45 02 005c 1234 4000 3f 11 5ca6 0a010203 c0a80009"));
}

}  // namespace
}  // namespace ferry::wire
