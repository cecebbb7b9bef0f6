#include "host/journal/process_slots.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/failure.h"

namespace ferry::host {
namespace {

int a_descriptor() {
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

bool is_open(int descriptor) {
  return ::fcntl(descriptor, F_GETFD) >= 0;
}

TEST(ProcessSlots, ComeBackOutOfParcels) {
  rnic::Slot slot;
  slot.descriptor = 9;
  slot.slot = 3;
  slot.entries = {{std::byte{1}, std::byte{2}}};
  const device::Letter::End name{port::Address::from_ipv4(1), 17};
  const auto parked = to_parked({{"rdma0", {slot}}, {"eth0", {}, "rxe0", {name}}});
  ASSERT_EQ(parked.size(), 2u);
  EXPECT_EQ(agent::descriptors_of(parked), (std::vector{9}));
  EXPECT_EQ(parked[1].parcel.kind, device::Kind::kVirtual);
  const auto contexts = to_slots(parked);
  ASSERT_EQ(contexts.size(), 2u);
  EXPECT_EQ(contexts[0].netdev, "rdma0");
  EXPECT_EQ(contexts[0].device_behind, "");
  ASSERT_EQ(contexts[0].slots.size(), 1u);
  EXPECT_EQ(contexts[0].slots[0].descriptor, 9);
  EXPECT_EQ(contexts[0].slots[0].entries, slot.entries);
  EXPECT_EQ(contexts[1].device_behind, "rxe0");
  EXPECT_EQ(contexts[1].names, (std::vector{name}));
  EXPECT_TRUE(contexts[1].slots.empty());
}

// A process says what is in its parcels.
TEST(ProcessSlots, AMalformedParcelTakesAllDescriptorsAlong) {
  const auto refuses = [](device::Parcel second) {
    const int first = a_descriptor();
    rnic::Slot slot;
    slot.descriptor = first;
    const auto other = second.descriptors;
    EXPECT_THROW(to_slots({{"rdma0", rnic::to_parcel({slot})}, {"rdma1", std::move(second)}}),
                 Failure);
    EXPECT_FALSE(is_open(first));
    for (const int descriptor : other) EXPECT_FALSE(is_open(descriptor));
  };
  refuses({device::Kind::kFerry, {}, {std::byte{1}}});
  refuses({device::Kind::kFerry, {a_descriptor()}, {}});                  // of no slot
  refuses({device::Kind::kVirtual, {a_descriptor()}, {std::byte{'r'}}});  // a device has no sockets
  refuses({device::Kind{77}, {a_descriptor()}, {}});
}

}  // namespace
}  // namespace ferry::host
