#include "sim_pair.h"

namespace ferry::rnic::testing {
namespace {

struct CompletionQueueTest : ::testing::Test, SimPair {
  std::byte memory[64];
  device::Mr* mr_a = nullptr;
  device::Mr* mr_b = nullptr;

  void set_up(int cqe) {
    ASSERT_NO_FATAL_FAILURE(open(cqe));
    ASSERT_NO_FATAL_FAILURE(connect());
    mr_a = a.reg(memory, sizeof memory);
    mr_b = b.reg(memory, sizeof memory);
  }
  void write(std::uint64_t id, unsigned flags = IBV_SEND_SIGNALED) {
    ASSERT_EQ(
        Send(IBV_WR_RDMA_WRITE, id, memory, 1, mr_a, flags).remote(memory, mr_b->rkey()).post(qp_a),
        0);
  }
  void send(unsigned flags) {
    ASSERT_EQ(post_receive(qp_b, 1, memory, 1, mr_b), 0);
    ASSERT_EQ(Send(IBV_WR_SEND, 1, memory, 1, mr_a, flags).post(qp_a), 0);
    run();
  }
};

TEST_F(CompletionQueueTest, GivesAtLeastWhatWasAskedFor) {
  set_up(1);
  for (int asked : {1, 2, 3, 7, 8, 100, 1000}) {
    device::Cq* cq = nullptr;
    ASSERT_EQ(a.context->create_cq({asked}, &cq), 0);
    EXPECT_GE(cq->capacity(), asked);
    EXPECT_LT(cq->capacity(), 2 * asked + 2);
  }
  device::Cq* cq = nullptr;
  EXPECT_EQ(a.context->create_cq({0}, &cq), EINVAL);
  EXPECT_EQ(a.context->create_cq({-1}, &cq), EINVAL);
  EXPECT_EQ(a.context->create_cq({CompletionQueue::kMaxEntries + 1}, &cq), EINVAL);
}

TEST_F(CompletionQueueTest, PollTakesTheOldestFirst) {
  set_up(16);
  for (std::uint64_t id = 0; id < 10; ++id) write(id);
  run();
  ibv_wc completions[16];
  ASSERT_EQ(a.cq->poll(4, completions), 4);
  for (std::uint64_t id = 0; id < 4; ++id) EXPECT_EQ(completions[id].wr_id, id);
  ASSERT_EQ(a.cq->poll(16, completions), 6);
  EXPECT_EQ(completions[5].wr_id, 9u);
  EXPECT_EQ(a.cq->poll(16, completions), 0);
  EXPECT_EQ(a.cq->poll(0, completions), 0);
  EXPECT_LT(a.cq->poll(-1, completions), 0);
}

TEST_F(CompletionQueueTest, PollOfAnEmptyQueueRunsTheEngine) {
  set_up(16);
  write(1);
  // Only virtual time passes here; nobody but the pollers runs the engines.
  ibv_wc wc{};
  int count = 0;
  for (int i = 0; i < 100 && count == 0; ++i) {
    network.advance_to(network.now() + std::chrono::microseconds(10));
    ibv_wc other{};
    b.cq->poll(1, &other);
    count = a.cq->poll(1, &wc);
  }
  EXPECT_EQ(count, 1);
}

TEST_F(CompletionQueueTest, ArmRaisesOneEvent) {
  set_up(16);
  ASSERT_EQ(a.cq->arm(false), 0);
  write(1);
  write(2);
  run();
  EXPECT_EQ(a.sink.completions(), 1);
  write(3);
  run();
  EXPECT_EQ(a.sink.completions(), 1);
  // What is there already raises nothing; what comes does.
  ASSERT_EQ(a.cq->arm(false), 0);
  EXPECT_EQ(a.sink.completions(), 1);
  write(4);
  run();
  EXPECT_EQ(a.sink.completions(), 2);
}

TEST_F(CompletionQueueTest, SolicitedOnly) {
  set_up(16);
  ASSERT_EQ(b.cq->arm(true), 0);
  send(IBV_SEND_SIGNALED);
  EXPECT_EQ(b.sink.completions(), 0);
  send(IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
  EXPECT_EQ(b.sink.completions(), 1);
}

TEST_F(CompletionQueueTest, FailuresCountAsSolicited) {
  set_up(16);
  ASSERT_EQ(b.cq->arm(true), 0);
  ASSERT_EQ(post_receive(qp_b, 1, memory, 1, mr_b), 0);
  ASSERT_EQ(qp_b->modify(attributes(IBV_QPS_ERR, 0, {}), IBV_QP_STATE), 0);
  EXPECT_EQ(b.sink.completions(), 1);
}

TEST_F(CompletionQueueTest, AnyOutweighsSolicited) {
  set_up(16);
  ASSERT_EQ(b.cq->arm(false), 0);
  ASSERT_EQ(b.cq->arm(true), 0);
  send(IBV_SEND_SIGNALED);
  EXPECT_EQ(b.sink.completions(), 1);
}

TEST_F(CompletionQueueTest, ModerationRaisesAnEventForSeveral) {
  set_up(16);
  ASSERT_EQ(a.cq->moderate(3, 10'000), 0);
  ASSERT_EQ(a.cq->arm(false), 0);
  write(1);
  write(2);
  run();
  EXPECT_EQ(a.sink.completions(), 0);
  write(3);
  run();
  EXPECT_EQ(a.sink.completions(), 1);
  // It is not armed any more.
  for (std::uint64_t id = 4; id < 10; ++id) write(id);
  run(std::chrono::milliseconds(20));
  EXPECT_EQ(a.sink.completions(), 1);
}

TEST_F(CompletionQueueTest, ModerationRaisesAnEventAfterItsPeriod) {
  set_up(16);
  ASSERT_EQ(a.cq->moderate(3, 10'000), 0);
  ASSERT_EQ(a.cq->arm(false), 0);
  run(std::chrono::milliseconds(20));  // counted from the first completion on
  write(1);
  run(std::chrono::milliseconds(9));
  EXPECT_EQ(a.sink.completions(), 0);
  run(std::chrono::milliseconds(2));
  EXPECT_EQ(a.sink.completions(), 1);
  ASSERT_EQ(a.cq->arm(false), 0);
  run(std::chrono::milliseconds(20));
  EXPECT_EQ(a.sink.completions(), 1);  // nothing came since
}

TEST_F(CompletionQueueTest, ModerationCountsWhatWouldRaiseAnEvent) {
  set_up(16);
  ASSERT_EQ(b.cq->moderate(2, 10'000), 0);
  ASSERT_EQ(b.cq->arm(true), 0);
  for (int i = 0; i < 3; ++i) send(IBV_SEND_SIGNALED);
  run(std::chrono::milliseconds(20));
  EXPECT_EQ(b.sink.completions(), 0);
  send(IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
  EXPECT_EQ(b.sink.completions(), 0);
  send(IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
  EXPECT_EQ(b.sink.completions(), 1);
}

TEST_F(CompletionQueueTest, ModerationThatEndsRaisesWhatItHeld) {
  set_up(16);
  ibv_device_attr_ex attributes{};
  ASSERT_EQ(a.context->query_device(&attributes), 0);
  ASSERT_EQ(
      a.cq->moderate(attributes.cq_mod_caps.max_cq_count, attributes.cq_mod_caps.max_cq_period), 0);
  ASSERT_EQ(a.cq->arm(false), 0);
  write(1);
  run();
  EXPECT_EQ(a.sink.completions(), 0);
  ASSERT_EQ(a.cq->moderate(1, 0), 0);
  EXPECT_EQ(a.sink.completions(), 1);
  // A count without a period could hold the last completion for ever: it is no moderation.
  ASSERT_EQ(a.cq->moderate(5, 0), 0);
  ASSERT_EQ(a.cq->arm(false), 0);
  write(2);
  run();
  EXPECT_EQ(a.sink.completions(), 2);
}

TEST_F(CompletionQueueTest, ModeratedOnesCanBeDestroyedAndLeaveNoTimer) {
  set_up(16);
  device::Cq* cq = nullptr;
  ASSERT_EQ(a.context->create_cq({16}, &cq), 0);
  std::swap(cq, a.cq);
  ASSERT_NO_FATAL_FAILURE(connect());
  ASSERT_EQ(a.cq->moderate(8, 60'000), 0);
  ASSERT_EQ(a.cq->arm(false), 0);
  write(1);
  run();
  EXPECT_LE(a.context->engine().deadlines().first(), network.now() + std::chrono::milliseconds(60));
  ASSERT_EQ(a.context->destroy(qp_a), 0);
  ASSERT_EQ(a.context->destroy(a.cq), 0);
  EXPECT_EQ(a.context->engine().deadlines().first(), transport::kNever);
  run(std::chrono::milliseconds(100));
  EXPECT_EQ(a.sink.completions(), 0);
}

TEST_F(CompletionQueueTest, OverflowIsAnErrorOfTheQueueAndItsQps) {
  set_up(3);
  ASSERT_EQ(a.cq->capacity(), 3);
  for (std::uint64_t id = 0; id < 5; ++id) write(id);
  run();
  EXPECT_TRUE(a.sink.saw(IBV_EVENT_CQ_ERR, a.cq));
  EXPECT_TRUE(a.sink.saw(IBV_EVENT_QP_FATAL, qp_a));
  EXPECT_EQ(qp_a->state(), IBV_QPS_ERR);
  // What it holds can still be had.
  ibv_wc completions[8];
  ASSERT_EQ(a.cq->poll(8, completions), 3);
  for (std::uint64_t id = 0; id < 3; ++id) {
    EXPECT_EQ(completions[id].wr_id, id);
    EXPECT_EQ(completions[id].status, IBV_WC_SUCCESS);
  }
  EXPECT_LT(a.cq->poll(8, completions), 0);
}

TEST_F(CompletionQueueTest, ExactlyFullIsNoOverflow) {
  set_up(3);
  for (std::uint64_t id = 0; id < 3; ++id) write(id);
  run();
  EXPECT_EQ(drain(a.cq).size(), 3u);
  EXPECT_FALSE(a.sink.saw(IBV_EVENT_CQ_ERR, a.cq));
  EXPECT_EQ(qp_a->state(), IBV_QPS_RTS);
}

TEST_F(CompletionQueueTest, IgnoredOverrunsLoseTheOldest) {
  ASSERT_NO_FATAL_FAILURE(open(3));
  device::Cq* cq = nullptr;
  ASSERT_EQ(a.context->create_cq({.cqe = 3, .ignore_overrun = true}, &cq), 0);
  std::swap(cq, a.cq);
  ASSERT_NO_FATAL_FAILURE(connect());
  mr_a = a.reg(memory, sizeof memory);
  mr_b = b.reg(memory, sizeof memory);
  for (std::uint64_t id = 0; id < 5; ++id) write(id);
  run();
  EXPECT_FALSE(a.sink.saw(IBV_EVENT_CQ_ERR, a.cq));
  EXPECT_EQ(qp_a->state(), IBV_QPS_RTS);
  const auto completions = drain(a.cq);
  ASSERT_EQ(completions.size(), 3u);
  EXPECT_EQ(completions[0].wr_id, 2u);
  EXPECT_EQ(completions[2].wr_id, 4u);
}

TEST_F(CompletionQueueTest, TimestampsAreOfTheAdding) {
  ASSERT_NO_FATAL_FAILURE(open(15));
  ASSERT_EQ(a.context->create_cq({.cqe = 15, .timestamps = true}, &a.cq), 0);
  ASSERT_NO_FATAL_FAILURE(connect());
  mr_a = a.reg(memory, sizeof memory);
  mr_b = b.reg(memory, sizeof memory);
  ibv_device_attr_ex attributes{};
  ASSERT_EQ(a.context->query_device(&attributes), 0);
  EXPECT_EQ(attributes.hca_core_clock, 1'000'000u);
  EXPECT_EQ(attributes.completion_timestamp_mask, ~std::uint64_t{0});
  std::uint64_t before[3];
  for (std::uint64_t id = 0; id < 3; ++id) {
    before[id] = a.context->clock();
    write(id);
    run();
  }
  ASSERT_EQ(a.cq->resize(7), 0);  // they stay with their completions
  ibv_wc wc{};
  for (std::uint64_t id = 0; id < 3; ++id) {
    device::CompletionTimes times;
    ASSERT_EQ(a.cq->poll_one(&wc, &times), 1);
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_GE(times.clock, before[id]);
    EXPECT_LT(times.clock, id < 2 ? before[id + 1] : a.context->clock());
    EXPECT_EQ(times.wallclock - times.clock, std::uint64_t{24 * 365} * 3600 * 1'000'000'000);
  }
}

TEST_F(CompletionQueueTest, TakingRunsNoEngine) {
  set_up(16);
  write(1);
  write(2);
  network.advance_to(network.now() + std::chrono::milliseconds(1));
  b.cq->poll(1, nullptr);  // b answers
  network.advance_to(network.now() + std::chrono::milliseconds(1));
  ASSERT_EQ(a.cq->arm(false), 0);
  ibv_wc wc{};
  device::CompletionTimes times;
  EXPECT_EQ(a.cq->take_one(&wc, &times), 0);
  EXPECT_EQ(a.cq->poll_one(&wc, &times), 1);
  EXPECT_EQ(a.sink.completions(), 1);
  EXPECT_EQ(a.cq->take_one(&wc, &times), 1);
  EXPECT_EQ(wc.wr_id, 2u);
  EXPECT_EQ(a.cq->take_one(&wc, &times), 0);
}

TEST_F(CompletionQueueTest, ResizeKeepsWhatWaits) {
  set_up(15);
  for (std::uint64_t id = 0; id < 10; ++id) write(id);
  run();
  ibv_wc completions[32];
  ASSERT_EQ(a.cq->poll(3, completions), 3);
  EXPECT_EQ(a.cq->resize(3), EINVAL);  // seven wait
  EXPECT_EQ(a.cq->resize(0), EINVAL);
  ASSERT_EQ(a.cq->resize(7), 0);
  ASSERT_EQ(a.cq->resize(100), 0);
  EXPECT_GE(a.cq->capacity(), 100);
  ASSERT_EQ(a.cq->poll(32, completions), 7);
  for (std::uint64_t i = 0; i < 7; ++i) EXPECT_EQ(completions[i].wr_id, i + 3);
}

TEST_F(CompletionQueueTest, CompletionsOfADestroyedQpAreGone) {
  set_up(16);
  device::Qp* const first = qp_a;
  write(1);
  run();
  ASSERT_NO_FATAL_FAILURE(connect());
  write(2);
  run();
  ASSERT_EQ(a.context->destroy(first), 0);
  const auto completions = drain(a.cq);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].wr_id, 2u);
}

}  // namespace
}  // namespace ferry::rnic::testing
