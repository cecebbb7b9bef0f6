#include "rnic/engine/timing/post_gatherer.h"

#include "sim_pair.h"

namespace ferry::rnic::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// The calls that a streaming program makes until its packets may wait.
transport::Time stream(PostGatherer& gatherer, transport::Time now) {
  for (std::uint32_t i = 0; i < PostGatherer::kStreak; ++i) {
    now += microseconds(1);
    EXPECT_FALSE(gatherer.keep(now, true)) << i;
  }
  return now + microseconds(1);
}

TEST(PostGatherer, KeepsNothingOfAProgramThatDoesNotStream) {
  PostGatherer gatherer;
  transport::Time now = milliseconds(1);
  for (int i = 0; i < 1000; ++i) {
    now += PostGatherer::kPrompt + microseconds(1);
    ASSERT_FALSE(gatherer.keep(now, true));
  }
}

// A call that sends takes long on a slow machine.
TEST(PostGatherer, CountsTheTimeBetweenTheCalls) {
  PostGatherer gatherer;
  transport::Time now = milliseconds(1);
  for (std::uint32_t i = 0; i < PostGatherer::kStreak; ++i) {
    now += microseconds(1);
    ASSERT_FALSE(gatherer.keep(now, true)) << i;
    now += 2 * PostGatherer::kPrompt;
    gatherer.leaves(now);
  }
  EXPECT_TRUE(gatherer.keep(now + microseconds(1), true));
}

TEST(PostGatherer, KeepsSoManyOfAStream) {
  PostGatherer gatherer;
  const transport::Time now = stream(gatherer, milliseconds(1));
  for (int turn = 0; turn < 3; ++turn) {
    for (std::uint32_t i = 1; i < PostGatherer::kMost; ++i) ASSERT_TRUE(gatherer.keep(now, true));
    ASSERT_FALSE(gatherer.keep(now, true));  // they all leave
  }
  gatherer.passes(now, true);
  for (std::uint32_t i = 1; i < PostGatherer::kMost; ++i) ASSERT_TRUE(gatherer.keep(now, true));
}

TEST(PostGatherer, KeepsNothingThatNoAcknowledgementWouldSend) {
  PostGatherer gatherer;
  const transport::Time now = stream(gatherer, milliseconds(1));
  EXPECT_TRUE(gatherer.keep(now, true));
  EXPECT_FALSE(gatherer.keep(now, false));
}

// The program computes after its last request: somebody else sends what was kept.
TEST(PostGatherer, TrustsAProgramLessThatDoesNotComeBack) {
  PostGatherer gatherer;
  transport::Time now = stream(gatherer, milliseconds(1));
  ASSERT_TRUE(gatherer.keep(now, true));
  now += milliseconds(1);
  gatherer.passes(now, false);
  now = stream(gatherer, now);
  for (std::uint32_t i = 0; i < PostGatherer::kStreak; ++i) {
    ASSERT_FALSE(gatherer.keep(now, true));  // a streak twice as long is needed now
  }
  EXPECT_TRUE(gatherer.keep(now, true));
  // A pass of the progress thread while the program is at it says nothing.
  gatherer.passes(now, false);
  EXPECT_TRUE(gatherer.keep(now, true));
}

// A late call ends no stream, several in a row do.
TEST(PostGatherer, ForgivesACallThatIsLate) {
  PostGatherer gatherer;
  transport::Time now = stream(gatherer, milliseconds(1));
  for (std::uint32_t i = 0; i < 2 * PostGatherer::kStreak; ++i) gatherer.keep(now, true);
  now += milliseconds(1);
  EXPECT_TRUE(gatherer.keep(now, true));
  now += milliseconds(1);
  EXPECT_FALSE(gatherer.keep(now, true));
}

TEST(PostGatherer, TrustsAProgramAgainThatComesBack) {
  PostGatherer gatherer;
  transport::Time now = stream(gatherer, milliseconds(1));
  for (int i = 0; i < 2; ++i) {  // 128 calls are needed now
    while (!gatherer.keep(now, true)) continue;
    now += milliseconds(1);
    gatherer.passes(now, false);
  }
  std::uint32_t calls = 0;
  for (; !gatherer.keep(now, true); ++calls) ASSERT_LT(calls, 1000u);
  EXPECT_EQ(calls, 4 * PostGatherer::kStreak);
  for (std::uint32_t i = 0; i < 2 * PostGatherer::kTrusted; ++i) {
    gatherer.passes(now, true);
    EXPECT_TRUE(gatherer.keep(now, true));
  }
  now += milliseconds(1);
  gatherer.passes(now, false);
  for (calls = 0; !gatherer.keep(now, true); ++calls) ASSERT_LT(calls, 1000u);
  EXPECT_EQ(calls, 2 * PostGatherer::kStreak);
}

struct Stream : ::testing::Test, SimPair {
  std::array<std::byte, 64> ours{}, theirs{};
  device::Mr *mr_a = nullptr, *mr_b = nullptr;
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open());
    ASSERT_NO_FATAL_FAILURE(connect({256, 64, 4, 4, 64}, true));
    mr_a = a.reg(ours.data(), ours.size());
    mr_b = b.reg(theirs.data(), theirs.size());
    run(milliseconds(100));  // the handshake
  }
  void write(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, i, ours.data(), 64, mr_a)
                    .remote(theirs.data(), mr_b->rkey())
                    .post(qp_a),
                0);
    }
  }
  std::uint64_t sent() {
    Engine::Lock lock(a.context->engine());
    return a.context->engine().qps().counters().sent_packets;
  }
};

TEST_F(Stream, LeavesTogetherAndWithTheNextPoll) {
  const std::uint64_t before = sent();
  const unsigned many = PostGatherer::kStreak + PostGatherer::kMost + 5;
  write(many);
  const std::uint64_t left = sent() - before;
  EXPECT_GE(left, PostGatherer::kStreak);
  EXPECT_LT(left, many);
  EXPECT_TRUE(drain(a.cq).empty());  // the poll
  EXPECT_EQ(sent() - before, many);
}

TEST_F(Stream, LeavesWithAnAcknowledgementWhenNobodyPolls) {
  const unsigned many = PostGatherer::kStreak + 5;
  write(many);
  run();
  EXPECT_EQ(drain(a.cq).size(), many);
}

}  // namespace
}  // namespace ferry::rnic::testing
