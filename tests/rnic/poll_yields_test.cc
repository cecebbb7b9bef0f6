#include "rnic/engine/timing/poll_yields.h"

#include <gtest/gtest.h>

namespace ferry::rnic {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A yield that took so long.
transport::Time yield(PollYields& yields, transport::Time now, transport::Time taken) {
  yields.begins(now);
  yields.ended(now + taken);
  return now + taken;
}

TEST(PollYields, YieldsRarelyWhereNobodyWantsTheCore) {
  PollYields yields;
  transport::Time now = milliseconds(1);
  unsigned count = 0;
  for (std::uint32_t i = 0; i < 10 * PollYields::kRarely; ++i) {
    if (!yields.due(true, now)) continue;
    ++count;
    now = yield(yields, now, microseconds(1));
  }
  EXPECT_EQ(count, 10u);
}

TEST(PollYields, NeverYieldsWhilePacketsCome) {
  PollYields yields;
  for (std::uint32_t i = 0; i < 10 * PollYields::kRarely; ++i) {
    ASSERT_FALSE(yields.due(i % (PollYields::kRarely - 1) != 0, milliseconds(1)));
  }
}

TEST(PollYields, YieldsForAWhileWhereSomebodyDid) {
  PollYields yields;
  transport::Time now = milliseconds(1);
  while (!yields.due(true, now)) continue;
  now = yield(yields, now, 2 * PollYields::kOwn);
  for (std::uint32_t i = 0; i < PollYields::kShared; ++i) {
    ASSERT_TRUE(yields.due(true, now)) << i;
    EXPECT_FALSE(yields.due(false, now));
    now = yield(yields, now, microseconds(1));
  }
  EXPECT_FALSE(yields.due(true, now));
}

// Beside a program that computes yields cost its time slices; answers may come from another core.
TEST(PollYields, KeepsItsCoreForAWhileWhereYieldsCostTimeSlices) {
  PollYields yields;
  transport::Time now = milliseconds(1);
  while (!yields.due(true, now)) continue;
  now = yield(yields, now, milliseconds(12));
  EXPECT_TRUE(yields.due(true, now));  // one is no sign
  now = yield(yields, now, milliseconds(12));
  for (const auto end = now + PollYields::kKept; now < end; now += microseconds(1)) {
    ASSERT_FALSE(yields.due(true, now));
  }
  EXPECT_TRUE(yields.due(true, now));
  now = yield(yields, now, microseconds(2));  // nobody computes any more
  EXPECT_TRUE(yields.due(true, now));
}

TEST(PollYields, IsAwayWhileItWaitsForTheCore) {
  PollYields yields;
  const transport::Time now = milliseconds(1);
  EXPECT_FALSE(yields.away(now));
  yields.begins(now);
  EXPECT_TRUE(yields.away(now + milliseconds(3)));
  EXPECT_FALSE(yields.away(now + PollYields::kLongest));  // may have ended there
  yields.ended(now + milliseconds(3));
  EXPECT_FALSE(yields.away(now + milliseconds(3)));
  EXPECT_EQ(yields.back(), now + milliseconds(3));
}

// The progress thread serves it then.
TEST(PollYields, IsNotAwayForTimeSlices) {
  PollYields yields;
  const transport::Time now = yield(yields, milliseconds(1), milliseconds(12));
  yields.begins(now);
  EXPECT_TRUE(yields.away(now + microseconds(999)));
  EXPECT_FALSE(yields.away(now + PollYields::kSlice));
}

}  // namespace
}  // namespace ferry::rnic
