#include <gtest/gtest.h>

#include "ledger.h"

namespace datagram_check {
namespace {

// Messages that took 5 ns each to send.
std::vector<Sending> sent_at(std::initializer_list<int64_t> times) {
  std::vector<Sending> sendings;
  for (const int64_t time : times) sendings.push_back({time, time + 5});
  return sendings;
}

TEST(Ledger, NothingLost) {
  Arrivals arrivals;
  for (uint64_t i = 0; i < 5; ++i) arrivals.add(4 - i);
  const Judgement judged = judge(sent_at({10, 20, 30, 40, 50}), arrivals.counts(), 0);
  EXPECT_EQ(judged.sent, 5u);
  EXPECT_EQ(judged.received, 5u);
  EXPECT_EQ(judged.lost, 0u);
  EXPECT_TRUE(judged.ranges.empty());
}

TEST(Ledger, LossesHaveTimes) {
  Arrivals arrivals;
  arrivals.add(0);
  arrivals.add(3);
  const Judgement judged = judge(sent_at({10, 20, 30, 40, 50}), arrivals.counts(), 0);
  EXPECT_EQ(judged.lost, 3u);
  ASSERT_EQ(judged.ranges.size(), 2u);
  EXPECT_EQ(judged.ranges[0].first, 1u);
  EXPECT_EQ(judged.ranges[0].last, 2u);
  EXPECT_EQ(judged.ranges[0].first_sent_ns, 25);
  EXPECT_EQ(judged.ranges[0].last_sent_ns, 30);
  EXPECT_EQ(judged.ranges[1].first, 4u);
}

TEST(Ledger, NeighbouringLossesJoin) {
  Arrivals arrivals;
  for (const uint64_t i : {0, 2, 5, 6}) arrivals.add(i);
  const Judgement judged = judge(sent_at({0, 1, 2, 3, 4, 5, 6, 7}), arrivals.counts(), 1);
  ASSERT_EQ(judged.ranges.size(), 2u);  // 1..4 over the message that got through, and 7
  EXPECT_EQ(judged.ranges[0].first, 1u);
  EXPECT_EQ(judged.ranges[0].last, 4u);
  EXPECT_EQ(judged.ranges[1].first, 7u);
}

TEST(Ledger, DoubledAndUnsentAreSeen) {
  Arrivals arrivals;
  arrivals.add(0);
  arrivals.add(0);
  arrivals.add(2);
  const Judgement judged = judge(sent_at({10, 20}), arrivals.counts(), 0);
  EXPECT_EQ(judged.duplicated, 1u);
  EXPECT_EQ(judged.lost, 1u);
  EXPECT_EQ(judged.unsent, 1u);
}

}  // namespace
}  // namespace datagram_check
