#include "host/standin/announcer.h"

#include <gtest/gtest.h>

namespace ferry::host {
namespace {

constexpr MacAddress kMac = {std::byte{0x02}, std::byte{0x78}, std::byte{0x00},
                             std::byte{0x01}, std::byte{0x00}, std::byte{0x2A}};

std::string hex(const std::vector<std::byte>& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const auto byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

// Field by field as RFC 826 and RFC 5227 have them.
TEST(Announcer, AnnouncesIpv4ByArp) {
  EXPECT_EQ(hex(announcement(kMac, port::Address::from_ipv4(0x0A4EC802))),
            "ffffffffffff"
            "02780001002a"
            "0806"
            "0001"
            "0800"
            "06"
            "04"
            "0001"
            "02780001002a"
            "0a4ec802"
            "000000000000"
            "0a4ec802");
}

// RFC 4861: hop limit 255, to all nodes, override and not solicited, target link-layer address. In
// the checksum the address is twice, as source and as target.
TEST(Announcer, AnnouncesIpv6ByNeighbourAdvertisement) {
  port::Address address;
  address.bytes = {};
  address.bytes[0] = std::byte{0xFD};
  address.bytes[1] = std::byte{0x78};
  address.bytes[13] = std::byte{0xC8};
  address.bytes[15] = std::byte{0x02};
  const std::string ip =
      "fd7800000000000000000000"
      "00c80002";
  std::uint32_t sum = 2 * (0xFD78 + 0x00C8 + 0x0002) + 0xFF02 + 0x0001 + 0x0020 + 0x003A + 0x8800 +
                      0x2000 + 0x0201 + 0x0278 + 0x0001 + 0x002A;
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = ~((sum & 0xFFFF) + (sum >> 16)) & 0xFFFF;
  char checksum[5];
  std::snprintf(checksum, sizeof checksum, "%04x", sum);
  EXPECT_EQ(hex(announcement(kMac, address)),
            "333300000001"
            "02780001002a"
            "86dd"
            "60000000"
            "0020"
            "3a"
            "ff" +
                ip +
                "ff020000000000000000000000000001"
                "8800" +
                checksum + "20000000" + ip +
                "0201"
                "02780001002a");
}

TEST(Announcer, AnUnknownNamespaceIsReportedAndHarmless) {
  Announcer announcer("/nonexistent");
}

}  // namespace
}  // namespace ferry::host
