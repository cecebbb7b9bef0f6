#include "host/control/allowance.h"

#include <gtest/gtest.h>

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

TEST(Allowance, SoManyAtOnceAndThenOneInAWhile) {
  Allowance allowance(3, milliseconds(1000));
  const Allowance::Time start = Allowance::Time() + std::chrono::hours(1);
  unsigned left_out = 7;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(allowance.take(1, start, &left_out));
  EXPECT_EQ(left_out, 0u);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(allowance.take(1, start + milliseconds(999), &left_out));
  EXPECT_TRUE(allowance.take(1, start + milliseconds(1000), &left_out));
  EXPECT_EQ(left_out, 5u);
  EXPECT_FALSE(allowance.take(1, start + milliseconds(1000), &left_out));
  // All of it is there again.
  const auto later = start + milliseconds(60000);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(allowance.take(1, later, &left_out));
    EXPECT_EQ(left_out, i == 0 ? 1u : 0u);
  }
  EXPECT_FALSE(allowance.take(1, later, &left_out));
}

TEST(Allowance, EachUserHasItsOwn) {
  Allowance allowance(1, milliseconds(1000));
  const Allowance::Time now = Allowance::Time() + std::chrono::hours(1);
  unsigned left_out = 0;
  for (uid_t user = 0; user < 1000; ++user) {
    EXPECT_TRUE(allowance.take(user, now, &left_out));
    EXPECT_FALSE(allowance.take(user, now, &left_out));
  }
}

}  // namespace
}  // namespace ferry::host
