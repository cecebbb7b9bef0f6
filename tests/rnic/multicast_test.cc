#include "rnic/engine/endpoints/multicast.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "port/sim_link.h"

namespace ferry::rnic {
namespace {

port::Address group(std::uint32_t number) {
  return port::Address::from_ipv4(0xEF000000u + number);  // 239.0.0.0 and on
}

// Members are only told apart here, never looked at.
QueuePair* member(std::size_t number) {
  static std::array<std::byte, 256> places;
  return reinterpret_cast<QueuePair*>(&places[number]);
}

const port::Address kLocal = port::Address::from_ipv4(0x0A000001);

struct Multicast : ::testing::Test {
  Multicast() : network(1) {
    groups.set_join([this](const port::Address& address, const port::Address&, int* error) {
      std::unique_ptr<port::Port> result;
      if (refuse != 0) {
        *error = refuse;
      } else {
        ++joined;
        result = network.attach({address, static_cast<std::uint16_t>(5000 + joined)});
      }
      return result;
    });
  }
  port::SimNetwork network;
  int joined = 0;
  int refuse = 0;  // errno of the next joins
  MulticastGroups groups;
};

TEST_F(Multicast, OneSocketPerGroup) {
  EXPECT_EQ(groups.attach(member(0), group(1), &kLocal), 0);
  EXPECT_EQ(groups.attach(member(1), group(1), &kLocal), 0);
  EXPECT_EQ(groups.attach(member(1), group(1), &kLocal), 0);  // once more changes nothing
  EXPECT_EQ(joined, 1);
  ASSERT_EQ(groups.groups().size(), 1u);
  EXPECT_EQ(groups.groups()[0]->members.size(), 2u);
  EXPECT_EQ(groups.detach(member(0), group(1)), 0);
  EXPECT_EQ(groups.detach(member(0), group(1)), EINVAL);
  EXPECT_EQ(groups.detach(member(1), group(1)), 0);
  EXPECT_TRUE(groups.groups().empty());
}

TEST_F(Multicast, AsManyGroupsAsReportedAndOneMore) {
  for (std::uint32_t i = 0; i < MulticastGroups::kMaxGroups; ++i) {
    ASSERT_EQ(groups.attach(member(0), group(i), &kLocal), 0) << i;
  }
  EXPECT_EQ(groups.attach(member(0), group(MulticastGroups::kMaxGroups), &kLocal), ENOMEM);
  EXPECT_EQ(groups.attach(member(1), group(0), &kLocal), 0);  // of a group that exists
  EXPECT_EQ(groups.groups_of(member(0)).size(), MulticastGroups::kMaxGroups);
  groups.forget(member(0));
  EXPECT_EQ(groups.groups().size(), 1u);
}

TEST_F(Multicast, AsManyMembersAsReportedAndOneMore) {
  for (std::size_t i = 0; i < MulticastGroups::kMaxMembers; ++i) {
    ASSERT_EQ(groups.attach(member(i), group(1), &kLocal), 0) << i;
  }
  EXPECT_EQ(groups.attach(member(MulticastGroups::kMaxMembers), group(1), &kLocal), ENOMEM);
  EXPECT_EQ(groups.detach(member(0), group(1)), 0);
  EXPECT_EQ(groups.attach(member(MulticastGroups::kMaxMembers), group(1), &kLocal), 0);
}

TEST_F(Multicast, AGroupThatCannotBeJoinedIsNotEntered) {
  refuse = ENODEV;
  EXPECT_EQ(groups.attach(member(0), group(1), &kLocal), ENODEV);
  EXPECT_TRUE(groups.groups().empty());
}

TEST_F(Multicast, GroupsAreLeftAndJoinedAgainWithAMove) {
  ASSERT_EQ(groups.attach(member(0), group(1), &kLocal), 0);
  groups.close();
  ASSERT_EQ(groups.groups().size(), 1u);
  EXPECT_EQ(groups.groups()[0]->port, nullptr);
  groups.open(kLocal);
  EXPECT_NE(groups.groups()[0]->port, nullptr);
  EXPECT_EQ(joined, 2);
  groups.open(kLocal);  // it is open
  EXPECT_EQ(joined, 2);
}

}  // namespace
}  // namespace ferry::rnic
