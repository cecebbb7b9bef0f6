// The checker must be able to fail: each kind of disorder in a sequence is found, and only that.
#include "judge.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <random>

namespace stream_check {
namespace {

class SequenceJudgeTest : public ::testing::Test {
 protected:
  void arrive(std::initializer_list<uint64_t> sequences) {
    for (const uint64_t s : sequences) judge.arrived(s, 100);
  }
  void expect(uint64_t received, uint64_t lost, uint64_t duplicated, uint64_t out_of_order,
              uint64_t corrupted) {
    EXPECT_EQ(judge.counts().received, received);
    EXPECT_EQ(judge.counts().lost, lost);
    EXPECT_EQ(judge.counts().duplicated, duplicated);
    EXPECT_EQ(judge.counts().out_of_order, out_of_order);
    EXPECT_EQ(judge.counts().corrupted, corrupted);
    EXPECT_EQ(judge.counts().bytes, received * 100);
    EXPECT_EQ(judge.counts().clean(), lost + duplicated + out_of_order + corrupted == 0);
    EXPECT_EQ(faults.total() == 0, judge.counts().clean());
  }
  FaultLog faults;
  SequenceJudge judge{"qp 0 send", &faults};
};

TEST_F(SequenceJudgeTest, AllInOrderIsClean) {
  arrive({0, 1, 2, 3});
  judge.finish(4);
  expect(4, 0, 0, 0, 0);
}

TEST_F(SequenceJudgeTest, OneMissingInTheMiddleIsLost) {
  arrive({0, 1, 3});
  judge.finish(4);
  expect(3, 1, 0, 0, 0);
  EXPECT_EQ(faults.first().front(), "qp 0 send: sequence 2 lost");
}

TEST_F(SequenceJudgeTest, MissingAtTheEndIsLost) {
  arrive({0, 1});
  judge.finish(5);
  expect(2, 3, 0, 0, 0);
  EXPECT_EQ(faults.first().front(), "qp 0 send: sequence 2 lost, up to 4");
}

TEST_F(SequenceJudgeTest, NothingAtAllIsLost) {
  judge.finish(7);
  expect(0, 7, 0, 0, 0);
}

TEST_F(SequenceJudgeTest, TheSameTwiceIsDuplicated) {
  arrive({0, 1, 1, 2, 0});
  judge.finish(3);
  expect(3, 0, 2, 0, 0);
}

TEST_F(SequenceJudgeTest, SwappedIsOutOfOrderNotLost) {
  arrive({0, 2, 1, 3});
  judge.finish(4);
  expect(4, 0, 0, 1, 0);
}

TEST_F(SequenceJudgeTest, LateAndThenAgainIsBoth) {
  arrive({0, 3, 1, 1, 2});
  judge.finish(4);
  expect(4, 0, 1, 2, 0);
}

TEST_F(SequenceJudgeTest, CorruptedIsNotLost) {
  arrive({0});
  judge.arrived_corrupted(1, "checksum wrong");
  arrive({2});
  judge.finish(3);
  expect(2, 0, 0, 0, 1);
}

TEST_F(SequenceJudgeTest, CorruptedAheadLeavesTheGapLost) {
  arrive({0});
  judge.arrived_corrupted(3, "checksum wrong");
  judge.finish(4);
  expect(1, 2, 0, 0, 1);
}

TEST_F(SequenceJudgeTest, MoreThanWasSentIsAFault) {
  arrive({0, 1, 2});
  judge.finish(2);
  expect(3, 0, 1, 0, 0);
}

// Against a plain count of what was removed from and repeated in a shuffled sequence.
TEST_F(SequenceJudgeTest, RandomLossAndRepetitionAreCountedExactly) {
  std::mt19937 random(7);
  uint64_t lost = 0;
  uint64_t repeated = 0;
  constexpr uint64_t kSent = 5000;
  for (uint64_t s = 0; s < kSent; ++s) {
    if (random() % 10 == 0) {
      ++lost;
      continue;
    }
    judge.arrived(s, 100);
    if (random() % 10 == 0) {
      ++repeated;
      judge.arrived(s, 100);
    }
  }
  judge.finish(kSent);
  expect(kSent - lost, lost, repeated, 0, 0);
  EXPECT_LE(faults.first().size(), 64u);
  EXPECT_GT(faults.total(), 64u);
}

}  // namespace
}  // namespace stream_check
