#include "rnic/system/link.h"

#include <sched.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "loopback.h"

// Ports that follow their network interface, in a network namespace of a thread's own.
namespace ferry::rnic::testing {
namespace {

bool ip(const std::string& arguments) {
  return std::system(("ip " + arguments + " 2>/dev/null").c_str()) == 0;
}

// With a veth v0 (10.9.9.1), whose link is down, and its other end v1. False: no privilege for
// that.
bool with_veth(const std::function<void()>& body) {
  bool made = false;
  std::thread([&] {
    made = unshare(CLONE_NEWNET) == 0 && ip("link add v0 type veth peer name v1") &&
           ip("addr add 10.9.9.1/24 dev v0") && ip("link set v0 up");
    if (made) body();
  }).join();
  return made;
}

ibv_port_state state_of(const char* netdev) {
  ibv_port_attr port{};
  describe_link(netdev, &port);
  return port.state;
}

Netdev veth() {
  Netdev netdev;
  netdev.name = "v0";
  netdev.addresses.push_back(port::Address::from_ipv4(0x0a090901));
  return netdev;
}

TEST(Link, StateAndSpeedAreTheInterfaces) {
  const bool made = with_veth([] {
    EXPECT_EQ(state_of("lo"), IBV_PORT_DOWN);
    EXPECT_EQ(state_of("v0"), IBV_PORT_DOWN);
    ASSERT_TRUE(ip("link set v1 up"));
    EXPECT_EQ(state_of("v0"), IBV_PORT_ACTIVE);  // at once: a program may be started next
    ibv_port_attr port{};
    describe_link("v0", &port);  // the kernel says 10 Gbit/s of every veth
    EXPECT_EQ(port.active_width, 1);
    EXPECT_EQ(port.active_speed, 8);
    EXPECT_EQ(port.phys_state, 5);
    port = {};
    describe_link("nothing", &port);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(port.active_width, 2);
    EXPECT_EQ(port.active_speed, 32);
  });
  if (!made) GTEST_SKIP() << "no network namespace";
}

TEST(Link, AWatchTellsEachChangeOnce) {
  const bool made = with_veth([] {
    LinkWatch watch("v0");
    bool up = false;
    EXPECT_FALSE(watch.changed(&up));  // not open
    watch.open();
    EXPECT_FALSE(watch.changed(&up));
    ASSERT_TRUE(ip("link set v1 up"));
    EXPECT_TRUE(eventually([&] { return watch.changed(&up); }));
    EXPECT_TRUE(up);
    ASSERT_TRUE(ip("link set v0 mtu 1400"));  // a message, but no change
    EXPECT_FALSE(watch.changed(&up));
    watch.close();
    ASSERT_TRUE(ip("link set v1 down"));
    EXPECT_TRUE(eventually([] { return state_of("v0") == IBV_PORT_DOWN; }));
    watch.open();
    EXPECT_TRUE(watch.changed(&up));  // while it was closed
    EXPECT_FALSE(up);
    EXPECT_FALSE(watch.changed(&up));
  });
  if (!made) GTEST_SKIP() << "no network namespace";
}

TEST(Link, ChangesAreEventsOfTheDevice) {
  const bool made = with_veth([] {
    ASSERT_TRUE(ip("link set v1 up"));
    ASSERT_TRUE(eventually([] { return state_of("v0") == IBV_PORT_ACTIVE; }));
    Node node;
    ASSERT_NO_FATAL_FAILURE(node.open(options(veth())));
    ASSERT_TRUE(ip("link set v1 down"));
    EXPECT_TRUE(eventually([&] { return node.sink.saw(IBV_EVENT_PORT_ERR, nullptr); }));
    ibv_port_attr port{};
    EXPECT_EQ(node.context->query_port(1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_DOWN);
    EXPECT_FALSE(node.sink.saw(IBV_EVENT_PORT_ACTIVE, nullptr));
    ASSERT_TRUE(ip("link set v1 up"));
    EXPECT_TRUE(eventually([&] { return node.sink.saw(IBV_EVENT_PORT_ACTIVE, nullptr); }));
  });
  if (!made) GTEST_SKIP() << "no network namespace";
}

TEST(Link, AChangeDuringAMoveIsNoticedAfterIt) {
  const bool made = with_veth([] {
    Node node;
    ASSERT_NO_FATAL_FAILURE(node.open(options(veth())));
    std::uint32_t unacked = 0;
    std::vector<rnic::Slot> slots;
    ASSERT_EQ(node.context->quiesce(std::chrono::seconds(1), &unacked), 0);
    ASSERT_EQ(node.context->detach(&slots), 0);
    ASSERT_TRUE(ip("link set v1 up"));
    ASSERT_TRUE(eventually([] { return state_of("v0") == IBV_PORT_ACTIVE; }));
    EXPECT_FALSE(node.sink.saw(IBV_EVENT_PORT_ACTIVE, nullptr));
    ASSERT_EQ(node.context->attach(std::move(slots)), 0);
    node.context->resume(true);
    EXPECT_TRUE(eventually([&] { return node.sink.saw(IBV_EVENT_PORT_ACTIVE, nullptr); }));
  });
  if (!made) GTEST_SKIP() << "no network namespace";
}

}  // namespace
}  // namespace ferry::rnic::testing
