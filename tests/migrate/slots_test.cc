#include "migrate/slots.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "migrate/net.h"
#include "port/slot.h"
#include "temporary.h"

namespace ferry::migrate {
namespace {

using test::failure_of;

constexpr std::uint32_t kLoopback = 0x7F000001;

device::Slot wanted(std::uint32_t address, std::uint32_t slot) {
  device::Slot result;
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

}  // namespace
}  // namespace ferry::migrate
