#include "rnic/poll_yields.h"

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
    if (!yields.due(true)) continue;
    ++count;
    now = yield(yields, now, microseconds(1));
  }
  EXPECT_EQ(count, 10u);
}

TEST(PollYields, NeverYieldsWhilePacketsCome) {
  PollYields yields;
  for (std::uint32_t i = 0; i < 10 * PollYields::kRarely; ++i) {
    ASSERT_FALSE(yields.due(i % (PollYields::kRarely - 1) != 0));
  }
}

TEST(PollYields, YieldsForAWhileWhereSomebodyDid) {
  PollYields yields;
  transport::Time now = milliseconds(1);
  while (!yields.due(true)) continue;
  now = yield(yields, now, 2 * PollYields::kOwn);
  for (std::uint32_t i = 0; i < PollYields::kShared; ++i) {
    ASSERT_TRUE(yields.due(true)) << i;
    EXPECT_FALSE(yields.due(false));
    now = yield(yields, now, microseconds(1));
  }
  EXPECT_FALSE(yields.due(true));
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

}  // namespace
}  // namespace ferry::rnic
