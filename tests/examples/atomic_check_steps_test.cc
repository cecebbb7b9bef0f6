#include "steps.h"

#include <gtest/gtest.h>

namespace atomic_check {
namespace {

TEST(AtomicSteps, EachStepOnce) {
  const Judgement judged = judge(6, {{0, 2, 5}, {1, 3}, {4}, {}});
  EXPECT_EQ(judged.steps, 6u);
  EXPECT_TRUE(judged.exact());
}

TEST(AtomicSteps, NothingAtAll) {
  EXPECT_TRUE(judge(0, {}).exact());
}

TEST(AtomicSteps, StepExecutedTwice) {  // as by a retry that was executed again
  const Judgement judged = judge(4, {{0, 1, 3}});
  EXPECT_EQ(judged.missing, 1u);
  EXPECT_EQ(judged.doubled + judged.beyond + judged.disordered, 0u);
  EXPECT_FALSE(judged.exact());
}

TEST(AtomicSteps, StepNotExecuted) {
  const Judgement judged = judge(2, {{0, 1}, {1}});
  EXPECT_EQ(judged.doubled, 1u);
  EXPECT_EQ(judged.missing, 0u);
  EXPECT_FALSE(judged.exact());
}

TEST(AtomicSteps, ValueThatWasNeverThere) {
  const Judgement judged = judge(2, {{0, 1}, {7}});
  EXPECT_EQ(judged.beyond, 1u);
  EXPECT_FALSE(judged.exact());
}

TEST(AtomicSteps, AnswersOutOfOrder) {
  const Judgement judged = judge(4, {{0, 2, 1}, {3}});
  EXPECT_EQ(judged.disordered, 1u);
  EXPECT_EQ(judged.doubled + judged.missing + judged.beyond, 0u);
  EXPECT_FALSE(judged.exact());
}

TEST(AtomicSteps, SpoiledCounter) {
  const Judgement judged = judge(~uint64_t{0}, {{0, 1}});
  EXPECT_EQ(judged.missing, ~uint64_t{0} - 2);
}

}  // namespace
}  // namespace atomic_check
