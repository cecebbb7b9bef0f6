#include "host/standin/slots.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <utility>

#include "base/net.h"
#include "base/unique_fd.h"
#include "port/slot.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using test::failure_of;

constexpr std::uint32_t kLoopback = 0x7F000001;

rnic::Slot wanted(std::uint32_t address, std::uint32_t slot) {
  rnic::Slot result;
  result.slot = slot;
  result.local = {port::Address::from_ipv4(address), port::udp_port_of_slot(slot)};
  return result;
}

TEST(Slots, TakesTheSameSlotOnTheAddressOfTheNetdev) {
  // The wanted address is of another host: the netdev's own counts.
  auto slots = bind_slots("", "lo", {wanted(0x0A4E0101, 937), wanted(kLoopback, 938)});
  ASSERT_EQ(slots.size(), 2u);
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(slots[i].local.address, port::Address::from_ipv4(kLoopback));
    EXPECT_EQ(slots[i].slot, 937 + i);
    EXPECT_EQ(slots[i].local.udp_port, port::udp_port_of_slot(937 + i));
    EXPECT_EQ(local_port(slots[i].descriptor), slots[i].local.udp_port);
  }
  close_slots(slots);
  EXPECT_EQ(slots[0].descriptor, -1);
}

TEST(Slots, TakesAnotherSlotWhereItsOwnIsHeld) {
  auto first = bind_slots("", "lo", {wanted(kLoopback, 939)});
  auto second = bind_slots("", "lo", {wanted(kLoopback, 939)});
  EXPECT_NE(second[0].slot, 939u);
  EXPECT_EQ(second[0].local.udp_port, port::udp_port_of_slot(second[0].slot));
  close_slots(first);
  close_slots(second);
}

// Standard peers cannot be told of another one.
TEST(Slots, TakesTheSamePlaceOrNone) {
  auto first = bind_same_slots("", "lo", {wanted(kLoopback, 941), wanted(kLoopback, 942)});
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[1].local, wanted(kLoopback, 942).local);
  EXPECT_EQ(failure_of([] {
              bind_same_slots("", "lo", {wanted(kLoopback, 943), wanted(kLoopback, 941)});
            }),
            "the QPNs at 127.0.0.1 (slot 941) cannot move along: Address already in use");
  EXPECT_EQ(failure_of([] { bind_same_slots("", "lo", {wanted(0x0A4E0101, 941)}); }),
            "the QPNs at 10.78.1.1 (slot 941) cannot move along: Cannot assign requested address");
  close_slots(first);
}

TEST(Slots, SaysWhatIsMissing) {
  EXPECT_NE(failure_of([] {
              bind_slots("", "nodev0", {wanted(kLoopback, 940)});
            }).find("no IPv4 address on nodev0 for 127.0.0.1"),
            std::string::npos);
  EXPECT_NE(failure_of([] {
              bind_slots("/nonexistent", "lo", {wanted(kLoopback, 940)});
            }).find("cannot enter network namespace /nonexistent"),
            std::string::npos);
}

struct OwnSlots : testing::Test {
  std::vector<ContextSlots> contexts{{"lo", bind_slots("", "lo", {wanted(kLoopback, 944)})}};
  rnic::Slot& slot = contexts[0].slots[0];
  std::set<port::Endpoint> seen;

  void TearDown() override { close_slots(contexts[0].slots); }
  std::string doubt(const std::vector<Place>& known = {}) {
    return failure_of([&] { need_own_slots(::getpid(), contexts, known, &seen); });
  }
  static std::string says(const std::string& doubt) {
    return "process " + std::to_string(::getpid()) +
           " gives away a socket of 127.0.0.1:" + std::to_string(port::udp_port_of_slot(944)) +
           " that is not its own: " + doubt;
  }
};

TEST_F(OwnSlots, OfAnRnicThatWasOpenedHere) {
  EXPECT_EQ(doubt(), "");
  EXPECT_TRUE(seen.contains(slot.local));
  seen.clear();
  slot.origin = slot.local;
  slot.epoch = 7;
  EXPECT_EQ(doubt(), "");
}

TEST_F(OwnSlots, EachComesOnce) {
  EXPECT_EQ(doubt(), "");
  EXPECT_EQ(doubt(), says("it comes twice"));
}

TEST_F(OwnSlots, AreBoundWhereTheySay) {
  const auto local = slot.local;
  const int descriptor = slot.descriptor;
  slot.slot = 945;
  EXPECT_EQ(doubt(), says("it is bound elsewhere"));
  slot.slot = 944;
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  slot.descriptor = pipe[0];
  EXPECT_EQ(doubt(), says("it is no UDP socket"));
  ::close(pipe[0]);
  ::close(pipe[1]);
  const UniqueFd unbound(::socket(AF_INET, SOCK_DGRAM, 0)), tcp(::socket(AF_INET, SOCK_STREAM, 0));
  slot.descriptor = unbound.get();
  EXPECT_EQ(doubt(), says("it is bound elsewhere"));
  slot.descriptor = tcp.get();
  EXPECT_EQ(doubt(), says("it is no UDP socket"));
  slot.descriptor = descriptor;
  slot.local = local;
  EXPECT_EQ(doubt(), "");
}

// Who makes a network namespace has every address there.
TEST_F(OwnSlots, AreOfTheProcesssNetwork) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes network namespaces here";
  std::thread([&] {
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    const UniqueFd there(::socket(AF_INET, SOCK_DGRAM, 0));
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP;
    ASSERT_EQ(::ioctl(there.get(), SIOCSIFFLAGS, &request), 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port::udp_port_of_slot(944));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(there.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const int own = std::exchange(slot.descriptor, there.get());
    EXPECT_NE(network_of_socket(own), network_of_socket(there.get()));
    EXPECT_EQ(doubt(), says("it is of another network namespace than the process"));
    slot.descriptor = own;
  }).join();
}

TEST_F(OwnSlots, AreOfTheNamesThatFerrydHasGiven) {
  slot.origin = wanted(0x0A4E0101, 3).local;
  slot.epoch = 5;
  const std::string refused =
      says("its RNIC was not opened at 10.78.1.1:" + std::to_string(slot.origin.udp_port));
  EXPECT_EQ(doubt(), refused);
  Place place{slot.origin, slot.local, "h2", "10.77.0.2:4780", 4, false};
  EXPECT_EQ(doubt({place}), "");
  seen.clear();
  place.epoch = 5;
  EXPECT_EQ(doubt({place}), says("it was given away before"));
  place.epoch = 4;
  place.location.udp_port ^= 1;
  EXPECT_EQ(doubt({place}), refused);
  place.location = slot.local;
  place.origin.udp_port ^= 1;
  EXPECT_EQ(doubt({place}), refused);
}

}  // namespace
}  // namespace ferry::host
