#include "xrc.h"

#include "passing_context.h"

// A context with an XRC domain leaves the device, and has all made anew. Its initiator is connected with its target.
namespace ferry::virt::testing {
namespace {

struct Xrc : ::testing::Test, XrcEnd {
  void SetUp() override {
    start();
    connect(*this);
  }
  std::uint32_t srqn(int queue) { return queues[queue].srq->number(); }
  std::uint64_t send_to(int queue, std::uint64_t value) { return pass(*this, *this, queue, value); }
};

TEST_F(Xrc, ReceivesThatWereNotConsumedWaitAgainInOrder) {
  receive(0, 1, 60);
  receive(1, 70, 72);
  EXPECT_EQ(send_to(0, 100), 1u);
  EXPECT_EQ(send_to(1, 101), 70u);
  move();
  EXPECT_TRUE(nothing_more()) << "the application sees nothing of the emptying";
  EXPECT_EQ(send_to(1, 102), 71u);
  move();
  receive(0, 61, 62);
  for (std::uint64_t id = 2; id <= 62; ++id) EXPECT_EQ(send_to(0, 100 + id), id);
  EXPECT_EQ(send_to(1, 103), 72u);
  EXPECT_TRUE(nothing_more());
}

TEST_F(Xrc, NumbersStay) {
  const std::uint32_t numbers[] = {srqn(0), srqn(1)};
  for (int i = 0; i < 3; ++i) {
    move();
    for (int queue : {0, 1}) {
      EXPECT_EQ(srqn(queue), numbers[queue]);
      receive(queue, 1, 1);
      EXPECT_EQ(send_to(queue, 7), 1u);
    }
  }
  EXPECT_NE(behind(queues[0].srq)->number(), numbers[0]) << "our RNIC draws another number";
}

// An SRQ that is made after a move, of the same domain.
TEST_F(Xrc, AnSrqOfLaterIsReached) {
  move();
  Queue later;
  make(&later);
  std::swap(queues[1], later);
  receive(1, 1, 2);
  EXPECT_EQ(send_to(1, 5), 1u);
  move();
  EXPECT_EQ(send_to(1, 6), 2u);
}

TEST_F(Xrc, AFullAndAnEmptySrqMove) {
  move();
  receive(0, 0, 127);
  ibv_recv_wr wr{}, *bad = nullptr;
  ASSERT_EQ(queues[0].srq->post_recv(&wr, &bad), ENOMEM) << "it is full";
  move();
  ASSERT_EQ(queues[0].srq->post_recv(&wr, &bad), ENOMEM) << "it is full again";
  for (std::uint64_t id = 0; id < 128; ++id) EXPECT_EQ(send_to(0, id), id);
}

// The emptying has its completions in the application's CQ, and must not overflow it.
TEST_F(Xrc, ACqOfOneEntryIsEnough) {
  Queue small;
  make(&small, 1);
  ASSERT_LT(small.cq->capacity(), 32);
  std::swap(queues[1], small);
  receive(1, 0, 127);
  move();
  for (std::uint64_t id = 0; id < 128; ++id) EXPECT_EQ(send_to(1, id), id);
  EXPECT_TRUE(nothing_more());
}

TEST_F(Xrc, CompletionsThatWaitAreKept) {
  receive(0, 1, 3);
  ASSERT_EQ(send(srqn(0), 11), 0);
  ASSERT_EQ(send(srqn(0), 12), 0);
  move();
  EXPECT_EQ(received(0), 1u);
  EXPECT_EQ(received(0), 2u);
  expect_sent();
  expect_sent();
  EXPECT_EQ(queues[0].memory[2], 12u);
  EXPECT_EQ(send_to(0, 13), 3u);
}

TEST_F(Xrc, WhatIsPostedInAStopComesBehind) {
  receive(0, 1, 2);
  ASSERT_EQ(quiesce(), 0);
  receive(0, 3, 3);
  ASSERT_EQ(send(srqn(0), 21), 0);
  device::Parcel parcel;
  ASSERT_EQ(context->park(&parcel), 0);
  receive(0, 4, 4);
  ASSERT_EQ(send(srqn(0), 22), 0);
  ASSERT_EQ(context->unpark(parcel), 0);
  context->resume(false);
  for (std::uint64_t id : {1, 2}) {
    EXPECT_EQ(received(0), id);
    expect_sent();
    EXPECT_EQ(queues[0].memory[id], 20 + id);
  }
  for (std::uint64_t id : {3, 4}) EXPECT_EQ(send_to(0, id), id);
}

// A key is of the PD of the SRQ that a request names (A14.5.2).
TEST_F(Xrc, WritesReadsAndAtomicsFindTheMemoryOfTheirSrq) {
  std::uint64_t here[2] = {41, 0};
  device::Mr* mr = reg(here, sizeof here);
  for (int i = 0; i < 2; ++i) {
    if (i == 1) move();
    for (int queue : {0, 1}) {
      Queue& q = queues[queue];
      const auto remote = reinterpret_cast<std::uintptr_t>(&q.memory[5]);
      Send write(IBV_WR_RDMA_WRITE, 1, &here[0], 8, mr);
      write.wr.wr.rdma = {remote, q.mr->rkey()};
      ASSERT_EQ(post(write, srqn(queue)), 0);
      Send add(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, &here[1], 8, mr);
      add.wr.wr.atomic = {remote, 1, 0, q.mr->rkey()};
      ASSERT_EQ(post(add, srqn(queue)), 0);
      Send read(IBV_WR_RDMA_READ, 3, &here[1], 8, mr);
      read.wr.wr.rdma = {remote, q.mr->rkey()};
      ASSERT_EQ(post(read, srqn(queue)), 0);
      for (std::uint64_t id : {1, 2, 3}) expect_sent(id);
      EXPECT_EQ(here[1], 42u);
    }
  }
}

// No receive takes the message: the stop is given up, and the message arrives when there is one.
TEST_F(Xrc, AMessageThatNobodyTakesEndsTheStop) {
  ASSERT_EQ(send(srqn(1), 9), 0);
  EXPECT_EQ(quiesce(std::chrono::milliseconds(30)), ETIMEDOUT);
  receive(1, 1, 1);
  EXPECT_EQ(received(1), 1u);
  expect_sent();
  move();
  receive(1, 2, 2);
  EXPECT_EQ(send_to(1, 10), 2u);
}

TEST_F(Xrc, AMoveThatIsGivenUpLeavesAllAsItIs) {
  receive(0, 1, 3);
  ASSERT_EQ(quiesce(), 0);
  receive(0, 4, 4);
  context->resume(true);
  for (std::uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(send_to(0, id), id);
}

// Objects end in their order, also after a move.
TEST_F(Xrc, TheDomainEndsLast) {
  move();
  EXPECT_EQ(context->destroy(xrcd), EBUSY);
  for (device::Qp* qp : {initiator, target}) ASSERT_EQ(context->destroy(qp), 0);
  EXPECT_EQ(context->destroy(xrcd), EBUSY);
  for (Queue& queue : queues) ASSERT_EQ(context->destroy(queue.srq), 0);
  ASSERT_EQ(context->destroy(xrcd), 0);
  for (Queue& queue : queues) ASSERT_EQ(context->destroy(queue.cq), 0);
  move();
}

// A device that has something else to do before it destroys an object.
struct BusyContext final : PassingContext {
  BusyContext(std::unique_ptr<device::Context> inner, const std::function<void()>& first)
      : PassingContext(std::move(inner)), first_(first) {}
  int destroy(device::Object* object) override {
    if (first_ != nullptr && dynamic_cast<device::Qp*>(object) != nullptr) first_();
    return PassingContext::destroy(object);
  }

 private:
  const std::function<void()>& first_;
};

struct XrcUnderDestruction : Xrc {
  std::function<void()> first;
  void SetUp() override {
    wrap = [this](auto inner) { return std::make_unique<BusyContext>(std::move(inner), first); };
    Xrc::SetUp();
  }
};

TEST_F(XrcUnderDestruction, ALateCompletionOfATargetHasTheNumberThatTheApplicationKnows) {
  move();
  receive(0, 1, 3);
  const std::uint32_t number = target->qpn();
  while (behind(target)->qpn() == number) move();
  ASSERT_EQ(send(srqn(0), 7), 0);
  expect_sent();
  first = [&] {
    ASSERT_EQ(send(srqn(0), 8), 0);
    expect_sent();
  };
  ASSERT_EQ(context->destroy(target), 0);
  first = nullptr;
  for (std::uint64_t id : {1, 2}) {
    const ibv_wc wc = wait_completion(queues[0].cq);
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.qp_num, number);
  }
  EXPECT_TRUE(nothing_more());
}

// A device whose domains other processes may have, too.
struct SharingContext final : PassingContext {
  using PassingContext::PassingContext;
  explicit SharingContext(std::unique_ptr<device::Context> inner)
      : PassingContext(std::move(inner)) {}
  bool shares_xrcds() const override { return true; }
  int open_qp(device::Xrcd* xrcd, std::uint32_t /*qpn*/, device::Qp** out) override {
    device::QpInit init;
    init.type = IBV_QPT_XRC_RECV;
    init.xrcd = xrcd;
    return create_qp(&init, out);
  }
};

struct SharedXrcd : ::testing::Test, Program {
  void SetUp() override {
    wrap = [](auto inner) { return std::make_unique<SharingContext>(std::move(inner)); };
    open();
  }
};

TEST_F(SharedXrcd, IsNamedAndTheProgramStays) {
  device::Xrcd* own = nullptr;
  ASSERT_EQ(context->open_xrcd({}, &own), 0);
  EXPECT_EQ(context->obstacle(), nullptr) << "nobody else has a domain without a file";
  device::Xrcd* shared = nullptr;
  ASSERT_EQ(context->open_xrcd({0, 0}, &shared), 0);
  EXPECT_STREQ(context->obstacle(), "an XRC domain of a file, which other processes may have, too");
  device::Qp* qp = nullptr;
  ASSERT_EQ(context->open_qp(shared, 5, &qp), 0);
  EXPECT_EQ(quiesce(), EOPNOTSUPP);
  EXPECT_EQ(context->destroy(shared), EBUSY);
  ASSERT_EQ(context->destroy(qp), 0);
  ASSERT_EQ(context->destroy(shared), 0);
  ASSERT_EQ(quiesce(), 0);
  context->resume(true);
}

}  // namespace
}  // namespace ferry::virt::testing
