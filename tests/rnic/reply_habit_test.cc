#include "rnic/engine/timing/reply_habit.h"

#include "sim_pair.h"

namespace ferry::rnic::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Prompt answers, as many as make a habit.
transport::Time answer(ReplyHabit& habit, transport::Time now) {
  for (unsigned i = 0; i < ReplyHabit::kHabit; ++i) {
    EXPECT_FALSE(habit.asked(now)) << i;
    habit.posted(now += microseconds(3));
  }
  return now;
}

TEST(ReplyHabit, IsMadeByPromptAnswers) {
  ReplyHabit habit;
  const transport::Time now = answer(habit, milliseconds(1));
  EXPECT_TRUE(habit.asked(now));
  EXPECT_EQ(habit.until(), now + ReplyHabit::kPrompt);
  EXPECT_TRUE(habit.asked(habit.until() - microseconds(1)));  // a poll in between
  habit.posted(habit.until() - microseconds(1));
  EXPECT_TRUE(habit.asked(now + milliseconds(100)));
}

TEST(ReplyHabit, IsLostByALateAnswer) {
  ReplyHabit habit;
  const transport::Time now = answer(habit, milliseconds(1));
  EXPECT_TRUE(habit.asked(now));
  habit.posted(now + ReplyHabit::kPrompt);
  EXPECT_FALSE(habit.asked(now + milliseconds(1)));
}

TEST(ReplyHabit, IsLostWhenNoAnswerComes) {
  ReplyHabit habit;
  const transport::Time now = answer(habit, milliseconds(1));
  EXPECT_TRUE(habit.asked(now));
  EXPECT_FALSE(habit.asked(now + ReplyHabit::kPrompt));
  EXPECT_FALSE(habit.asked(now + ReplyHabit::kPrompt + microseconds(1)));
}

TEST(ReplyHabit, OfLongIsLostByThreeLateAnswers) {
  ReplyHabit habit;
  transport::Time now = answer(habit, milliseconds(1));
  for (unsigned i = 0; i < ReplyHabit::kMost; ++i) {
    EXPECT_TRUE(habit.asked(now));
    habit.posted(now += microseconds(3));
  }
  for (int late = 0; late < 3; ++late) {
    EXPECT_TRUE(habit.asked(now)) << late;
    habit.posted(now += ReplyHabit::kPrompt);
  }
  EXPECT_FALSE(habit.asked(now));
}

TEST(ReplyHabit, RequestsThatAnswerNothingMakeNone) {
  ReplyHabit habit;
  for (int i = 0; i < 1000; ++i) habit.posted(milliseconds(1) + microseconds(i));
  EXPECT_FALSE(habit.asked(milliseconds(2)));
}

// A sends, B answers.
struct PingPong : ::testing::Test, SimPair {
  std::array<std::byte, 64> ours{}, theirs{};
  device::Mr *mr_a = nullptr, *mr_b = nullptr;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open());
    ASSERT_NO_FATAL_FAILURE(connect({256, 64, 4, 4, 64}, true));
    mr_a = a.reg(ours.data(), ours.size());
    mr_b = b.reg(theirs.data(), theirs.size());
    run(milliseconds(100));  // the handshake
    for (unsigned i = 0; i < ReplyHabit::kHabit; ++i) {
      ASSERT_NO_FATAL_FAILURE(ask());
      EXPECT_EQ(drain(b.cq).size(), i == 0 ? 1u : 2u);  // and the answer before
      ASSERT_NO_FATAL_FAILURE(reply());
      run();
      EXPECT_EQ(drain(a.cq).size(), 2u);
    }
    ASSERT_NO_FATAL_FAILURE(ask());
    EXPECT_EQ(drain(b.cq).size(), 2u);
    before = sent_by_b();
  }
  // The packet is at B, which has not looked yet.
  void ask() {
    ASSERT_EQ(post_receive(qp_a, 1, ours.data(), 64, mr_a), 0);
    ASSERT_EQ(post_receive(qp_b, 1, theirs.data(), 64, mr_b), 0);
    ASSERT_EQ(Send(IBV_WR_SEND, 1, ours.data(), 64, mr_a).post(qp_a), 0);
    network.advance_to(network.now() + kFlight);
  }
  void reply() { ASSERT_EQ(Send(IBV_WR_SEND, 1, theirs.data(), 64, mr_b).post(qp_b), 0); }
  // The progress thread of B takes what has come.
  void pass_of_thread() {
    Engine& engine = b.context->engine();
    Engine::Lock lock(engine);
    engine.thread_sleep().ends();
    engine.run(network.now(), Engine::Caller::kThread);
  }
  // ... and falls asleep until then, if nothing else is due.
  transport::Time held_at_most_until() {
    Engine::Lock lock(b.context->engine());
    return b.context->engine().held_packets().at_most_until(network.now());
  }
  std::uint64_t sent_by_b() {
    Engine::Lock lock(b.context->engine());
    return b.context->engine().qps().counters().sent_packets;
  }
  static constexpr transport::Time kFlight = microseconds(10);
  std::uint64_t before = 0;
};

TEST_F(PingPong, TheAcknowledgementLeavesBehindTheAnswer) {
  EXPECT_TRUE(drain(b.cq).empty());  // a poll
  EXPECT_EQ(sent_by_b(), before);
  reply();
  EXPECT_EQ(sent_by_b(), before + 2);
  network.advance_to(network.now() + kFlight);
  EXPECT_EQ(drain(a.cq).size(), 2u);
}

TEST_F(PingPong, ItLeavesAloneWhenNoAnswerComes) {
  network.advance_to(network.now() + ReplyHabit::kPrompt + microseconds(1));
  EXPECT_TRUE(drain(b.cq).empty());
  EXPECT_EQ(sent_by_b(), before + 1);
}

TEST_F(PingPong, TheThreadHoldsItForTheAnswer) {
  pass_of_thread();
  EXPECT_EQ(sent_by_b(), before);
  network.advance_to(held_at_most_until() - microseconds(1));
  reply();
  EXPECT_EQ(sent_by_b(), before + 2);
  held_at_most_until();
  EXPECT_EQ(held_at_most_until(), transport::kNever) << "nothing is held";
}

TEST_F(PingPong, AThreadThatHeldItInVainSendsIt) {
  pass_of_thread();
  network.advance_to(held_at_most_until());
  pass_of_thread();
  EXPECT_EQ(sent_by_b(), before + 1);
}

TEST_F(PingPong, NothingIsHeldWhileTheThreadSleepsForLong) {
  {
    Engine::Lock lock(b.context->engine());
    b.context->engine().thread_sleep().begins(network.now() + milliseconds(2), false);
  }
  EXPECT_TRUE(drain(b.cq).empty());  // a poll
  EXPECT_EQ(sent_by_b(), before + 1);
  EXPECT_EQ(held_at_most_until(), network.now() + milliseconds(1)) << "the next may be held";
}

TEST_F(PingPong, AProgramThatWaitsForEventsDoesNotAnswerAtOnce) {
  b.cq->arm(false);
  pass_of_thread();
  EXPECT_EQ(sent_by_b(), before + 1) << "before its event";
  ASSERT_NO_FATAL_FAILURE(reply());
  network.advance_to(network.now() + kFlight);
  drain(a.cq);
  ASSERT_NO_FATAL_FAILURE(ask());
  before = sent_by_b();
  pass_of_thread();
  EXPECT_EQ(sent_by_b(), before + 1) << "nor for a while after it";
}

TEST_F(PingPong, ItLeavesWithAPassOfAnybodyElse) {
  run(microseconds(500));  // before A asks once more (TailProbe)
  EXPECT_EQ(sent_by_b(), before + 1);
}

TEST_F(PingPong, ANewReceiveDoesNotSendIt) {
  ASSERT_EQ(post_receive(qp_b, 1, theirs.data(), 64, mr_b), 0);
  EXPECT_EQ(sent_by_b(), before);
}

TEST_F(PingPong, TheEndOfTheQpSendsIt) {
  ASSERT_EQ(b.context->destroy(qp_b), 0);
  network.advance_to(network.now() + kFlight);
  EXPECT_EQ(drain(a.cq).size(), 1u);
}

TEST_F(PingPong, ResetAndErrorSendIt) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(qp_b->modify(attributes, IBV_QP_STATE), 0);
  EXPECT_EQ(sent_by_b(), before + 1);
}

TEST_F(PingPong, TheEndOfTheProcessSendsIt) {
  b.context->leave();
  EXPECT_EQ(sent_by_b(), before + 1);
}

}  // namespace
}  // namespace ferry::rnic::testing
