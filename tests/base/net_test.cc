#include "base/net.h"
#include "port/address_text.h"

#include <gtest/gtest.h>

#include "temporary.h"

namespace ferry {
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

}  // namespace
}  // namespace ferry
