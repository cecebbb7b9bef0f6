#include "port/address_text.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace ferry::port {
namespace {

TEST(AddressText, PrintsEndpoints) {
  EXPECT_EQ(to_string(Endpoint{Address::from_ipv4(0x0A4E0101), 4791}), "10.78.1.1:4791");
  Endpoint v6;
  v6.address.bytes[0] = std::byte{0xfd};
  v6.address.bytes[15] = std::byte{1};
  v6.udp_port = 4791;
  EXPECT_EQ(to_string(v6), "[fd00::1]:4791");
}

TEST(AddressText, ReadsSocketAddresses) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(0x0A4E0101);
  EXPECT_EQ(to_string(to_address(reinterpret_cast<const sockaddr*>(&v4))), "10.78.1.1");
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  ASSERT_EQ(::inet_pton(AF_INET6, "fd78::1", &v6.sin6_addr), 1);
  EXPECT_EQ(to_string(to_address(reinterpret_cast<const sockaddr*>(&v6))), "fd78::1");
}

}  // namespace
}  // namespace ferry::port
