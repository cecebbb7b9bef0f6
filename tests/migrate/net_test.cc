#include "migrate/net.h"

#include <gtest/gtest.h>

#include "temporary.h"

namespace ferry::migrate {
namespace {

using test::failure_of;
using HostPort = std::pair<std::string, std::uint16_t>;

TEST(Net, SplitsHostAndPort) {
  EXPECT_EQ(split_host_port("h2", 4780), HostPort("h2", 4780));
  EXPECT_EQ(split_host_port("h2:99", 4780), HostPort("h2", 99));
  EXPECT_EQ(split_host_port("10.0.0.1:99", 4780), HostPort("10.0.0.1", 99));
  EXPECT_EQ(split_host_port("fd78::1", 4780), HostPort("fd78::1", 4780));
  EXPECT_EQ(split_host_port("[fd78::1]", 4780), HostPort("fd78::1", 4780));
  EXPECT_EQ(split_host_port("[fd78::1]:99", 4780), HostPort("fd78::1", 99));
  for (const char* wrong : {"", ":99", "h2:", "h2:x", "h2:65536", "h2:-1", "[::1", "[::1]99"}) {
    EXPECT_NE(failure_of([&] { split_host_port(wrong, 1); }), "") << wrong;
  }
}

TEST(Net, ResolvesOrSaysWhatIsUnknown) {
  EXPECT_EQ(resolve("127.0.0.1"), "127.0.0.1");
  EXPECT_NE(failure_of([] {
              resolve("no.such.host.invalid");
            }).find("unknown host 'no.such.host.invalid'"),
            std::string::npos);
}

TEST(Net, ReadsTheAddressesOfGrpcsPeers) {
  EXPECT_EQ(address_of_peer("ipv4:10.0.0.2:4780"), "10.0.0.2");
  EXPECT_EQ(address_of_peer("ipv6:%5Bfd78::1%5D:4780"), "fd78::1");
  EXPECT_EQ(address_of_peer("ipv6:[fd78::1]:4780"), "fd78::1");
  EXPECT_EQ(address_of_peer("ipv6:%5B::ffff:10.0.0.2%5D:4780"), "10.0.0.2");
  EXPECT_EQ(address_of_peer("unix:/run/x"), "");
}

TEST(Net, PrintsEndpoints) {
  EXPECT_EQ(to_string(port::Endpoint{port::Address::from_ipv4(0x0A4E0101), 4791}),
            "10.78.1.1:4791");
  port::Endpoint v6;
  v6.address.bytes[0] = std::byte{0xfd};
  v6.address.bytes[15] = std::byte{1};
  v6.udp_port = 4791;
  EXPECT_EQ(to_string(v6), "[fd00::1]:4791");
}

}  // namespace
}  // namespace ferry::migrate
