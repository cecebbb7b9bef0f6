#include "port/udp_close_watch.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>

#include "network_namespace.h"
#include "port/slot.h"
#include "port/udp_port.h"

namespace ferry::port {
namespace {

constexpr std::uint16_t kPort = udp_port_of_slot(kMaxSlot - 1);

bool readable(const UdpCloseWatch& watch) {
  pollfd p{watch.descriptor(), POLLIN, 0};
  return ::poll(&p, 1, 20000) == 1;
}

// Others may close sockets of theirs meanwhile.
bool told_of(UdpCloseWatch& watch, std::uint16_t udp_port) {
  while (readable(watch)) {
    if (watch.closed(udp_port)) return true;
  }
  return false;
}

struct UdpCloseWatchTest : testing::Test {
  // Where possible: two tests may use one port.
  const bool alone = in_own_network_namespace();
};

TEST_F(UdpCloseWatchTest, TellsOfThePortThatWasAskedFor) {
  int error = 0;
  UdpCloseWatch watch;
  for (const Address& address : {Address::from_ipv4(0x7F000001), [] {
                                   Address one;
                                   one.bytes[15] = std::byte{1};
                                   return one;
                                 }()}) {
    auto port = UdpPort::bind(address, kMaxSlot - 1, &error);
    ASSERT_TRUE(port) << error;
    watch.open();
    ASSERT_GE(watch.descriptor(), 0);
    EXPECT_FALSE(watch.closed(kPort));
    port.reset();
    EXPECT_TRUE(told_of(watch, kPort));
    EXPECT_FALSE(watch.closed(kPort));  // once
    watch.close();
    EXPECT_EQ(watch.descriptor(), -1);
  }
}

TEST_F(UdpCloseWatchTest, OtherPortsAreNotMeant) {
  int error = 0;
  auto port = UdpPort::bind(Address::from_ipv4(0x7F000001), kMaxSlot - 2, &error);
  ASSERT_TRUE(port) << error;
  UdpCloseWatch watch;
  watch.open();
  port.reset();
  ASSERT_TRUE(readable(watch));
  EXPECT_FALSE(watch.closed(kPort));
}

TEST_F(UdpCloseWatchTest, NothingIsToldWhileItIsNotOpen) {
  UdpCloseWatch watch;
  EXPECT_FALSE(watch.closed(kPort));
}

}  // namespace
}  // namespace ferry::port
