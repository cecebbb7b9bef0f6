#include <array>

#include "passing_context.h"
#include "rig.h"

// A context with SRQs leaves the device, and has them made anew.
namespace ferry::virt::testing {
namespace {

using r::Send;
using r::wait_completion;

// Two pairs of QPs; the receiving ones share an SRQ.
struct SharedReceives : ::testing::Test, Program {
  device::Srq* srq = nullptr;
  std::array<device::Qp*, 2> senders{}, receivers{};
  device::Mr* mr = nullptr;
  std::array<std::uint64_t, 128> memory{};

  void SetUp() override {
    open();
    srq = create_srq(64, 2);
    mr = reg(memory.data(), sizeof memory);
    for (int i : {0, 1}) {
      senders[i] = create_qp();
      receivers[i] = create_qp({16, 0, 4, 0, 64}, IBV_QPT_RC, srq);
      connect(senders[i], receivers[i]);
    }
  }
  void receive(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t id = first; id <= last; ++id)
      ASSERT_EQ(r::post_receive(srq, id, &memory[id], 8, mr), 0) << id;
  }
  // Sends `value`, and gives the wr_id of the receive that got it.
  std::uint64_t send(int sender, std::uint64_t value) {
    EXPECT_EQ(Send(IBV_WR_SEND, 1000, &value, 8, nullptr, IBV_SEND_SIGNALED | IBV_SEND_INLINE)
                  .post(senders[sender]),
              0);
    std::uint64_t received = 0;
    for (int i : {0, 1}) {
      const ibv_wc wc = wait_completion(cq);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << i;
      if (wc.wr_id == 1000) continue;
      received = wc.wr_id;
      EXPECT_EQ(wc.qp_num, receivers[sender]->qpn());
      EXPECT_EQ(memory[received], value);
    }
    return received;
  }
  bool nothing_more() {
    ibv_wc wc{};
    return cq->poll(1, &wc) == 0;
  }
  std::uint32_t limit() {
    ibv_srq_attr attributes{};
    EXPECT_EQ(srq->query(&attributes), 0);
    return attributes.srq_limit;
  }
};

TEST_F(SharedReceives, ThoseThatWereNotConsumedWaitAgainInOrder) {
  receive(1, 50);
  EXPECT_EQ(send(0, 100), 1u);
  EXPECT_EQ(send(1, 101), 2u);
  move();
  EXPECT_TRUE(nothing_more()) << "the application sees nothing of the emptying";
  EXPECT_EQ(send(1, 102), 3u);
  move();
  receive(51, 52);
  for (std::uint64_t id = 4; id <= 52; ++id) EXPECT_EQ(send(id % 2 == 0 ? 0 : 1, 100 + id), id);
  EXPECT_TRUE(nothing_more());
}

TEST_F(SharedReceives, AFullAndAnEmptyOneMove) {
  move();
  receive(1, 64);
  ibv_sge sge{};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  ASSERT_EQ(srq->post_recv(&wr, &bad), ENOMEM) << "it is full";
  move();
  ASSERT_EQ(srq->post_recv(&wr, &bad), ENOMEM) << "it is full again";
  for (std::uint64_t id = 1; id <= 64; ++id) EXPECT_EQ(send(0, id), id);
  move();
  receive(65, 65);
  EXPECT_EQ(send(1, 1), 65u);
}

TEST_F(SharedReceives, WhatIsPostedInAStopComesBehind) {
  receive(1, 2);
  ASSERT_EQ(quiesce(), 0);
  receive(3, 3);
  device::Parcel parcel;
  ASSERT_EQ(context->park(&parcel), 0);
  receive(4, 4);
  std::array<ibv_sge, 3> elements{};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.sg_list = elements.data();
  wr.num_sge = 3;
  EXPECT_EQ(srq->post_recv(&wr, &bad), EINVAL) << "it takes two elements, also while it is away";
  EXPECT_EQ(bad, &wr);
  ASSERT_EQ(context->unpark(parcel), 0);
  receive(5, 5);
  context->resume(false);
  for (std::uint64_t id = 1; id <= 5; ++id) EXPECT_EQ(send(0, id), id);
}

TEST_F(SharedReceives, AMoveThatIsGivenUpLeavesThemWhereTheyAre) {
  receive(1, 3);
  ASSERT_EQ(quiesce(), 0);
  receive(4, 4);
  context->resume(true);
  for (std::uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(send(0, id), id);
}

// A device that cannot bring a QP to the error state: park() fails, and the move is given up.
TEST_F(SharedReceives, WaitAgainAfterAQpThatIsNotFlushed) {
  struct DeafQp final : PassingQp {
    DeafQp(device::Qp& qp, const bool& is_deaf) : PassingQp(qp), is_deaf_(is_deaf) {}
    int modify(const ibv_qp_attr& attributes, int mask) override {
      return is_deaf_ && attributes.qp_state == IBV_QPS_ERR ? EIO
                                                            : PassingQp::modify(attributes, mask);
    }
    const bool& is_deaf_;
  };
  struct DeafDevice final : WrappingContext {
    DeafDevice(std::unique_ptr<device::Context> inner, const bool& is_deaf)
        : WrappingContext(std::move(inner)), is_deaf_(is_deaf) {}
    std::unique_ptr<PassingQp> wrap(device::Qp& qp) override {
      return std::make_unique<DeafQp>(qp, is_deaf_);
    }
    const bool& is_deaf_;
  };
  bool is_deaf = false;
  device->wrap = [&](auto inner) {
    return std::make_unique<DeafDevice>(std::move(inner), is_deaf);
  };
  move();  // the QPs are those of such a device from now on
  receive(1, 3);
  ASSERT_EQ(quiesce(), 0);
  device::Parcel parcel;
  is_deaf = true;
  EXPECT_EQ(context->park(&parcel), EIO);
  is_deaf = false;
  context->resume(true);
  for (std::uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(send(0, id), id);
}

// A device that has no QP left by which the SRQ could be emptied: the stop is given up before anything is taken out.
TEST_F(SharedReceives, WaitOnWhereTheDeviceHasNoQpLeft) {
  struct FullDevice final : PassingContext {
    FullDevice(std::unique_ptr<device::Context> inner, const bool& is_full)
        : PassingContext(std::move(inner)), is_full_(is_full) {}
    int create_qp(device::QpInit* init, device::Qp** out) override {
      return is_full_ ? ENOMEM : PassingContext::create_qp(init, out);
    }
    const bool& is_full_;
  };
  bool is_full = false;
  device->wrap = [&](auto inner) {
    return std::make_unique<FullDevice>(std::move(inner), is_full);
  };
  move();
  receive(1, 3);
  is_full = true;
  EXPECT_EQ(quiesce(), ENOMEM);
  EXPECT_EQ(send(0, 1), 1u);
  is_full = false;
  move();
  for (std::uint64_t id = 2; id <= 3; ++id) EXPECT_EQ(send(0, id), id);
}

TEST_F(SharedReceives, TheLimitStaysAndIsReachedOnce) {
  receive(1, 4);
  ibv_srq_attr wanted{};
  wanted.srq_limit = 3;
  ASSERT_EQ(srq->modify(wanted, IBV_SRQ_LIMIT), 0);
  move();
  EXPECT_EQ(limit(), 3u);
  EXPECT_EQ(sink.count(IBV_EVENT_SRQ_LIMIT_REACHED, srq), 0u) << "of the emptying";
  send(0, 1);
  EXPECT_EQ(sink.count(IBV_EVENT_SRQ_LIMIT_REACHED, srq), 0u) << "three wait";
  send(0, 2);
  EXPECT_EQ(sink.count(IBV_EVENT_SRQ_LIMIT_REACHED, srq), 1u);
  EXPECT_EQ(limit(), 0u);
  move();
  EXPECT_EQ(limit(), 0u);
  send(0, 3);
  EXPECT_EQ(sink.count(IBV_EVENT_SRQ_LIMIT_REACHED, srq), 1u);
}

TEST_F(SharedReceives, AResizedOneKeepsItsReceives) {
  receive(1, 60);
  ibv_srq_attr wanted{};
  wanted.max_wr = 100;
  ASSERT_EQ(srq->modify(wanted, IBV_SRQ_MAX_WR), 0);
  receive(61, 100);
  move();
  ibv_srq_attr attributes{};
  ASSERT_EQ(srq->query(&attributes), 0);
  EXPECT_GE(attributes.max_wr, 100u);
  for (std::uint64_t id = 1; id <= 100; ++id) EXPECT_EQ(send(id % 2 == 0 ? 0 : 1, id), id);
}

TEST_F(SharedReceives, AreAmongWhatIsNeeded) {
  EXPECT_EQ(
      context->needs(),
      "pds 1\nmrs 1\ncqs 1000 1\nsrqs 64 2 1\n"
      "qps 2 0 16 16 4 4 64 2\nqps 2 1 16 0 4 0 64 2\n"
      "gid 1 2 00000000000000000000ffff7f000001\nmtu 3\nreads 4\nserved_reads 4\natomics 1\n");
  const std::string before = context->needs();
  move();
  EXPECT_EQ(context->needs(), before);
}

TEST_F(SharedReceives, OneWithoutAQpMovesAsWell) {
  device::Srq* alone = create_srq(8);
  ASSERT_EQ(r::post_receive(alone, 7, &memory[7], 8, mr), 0);
  move();
  device::Qp* sender = create_qp();
  device::Qp* receiver = create_qp({16, 0, 4, 0, 64}, IBV_QPT_RC, alone);
  connect(sender, receiver);
  std::uint64_t value = 9;
  ASSERT_EQ(Send(IBV_WR_SEND, 1, &value, 8, nullptr, IBV_SEND_INLINE).post(sender), 0);
  EXPECT_EQ(wait_completion(cq).wr_id, 7u);
  EXPECT_EQ(memory[7], 9u);
  for (device::Qp* qp : {sender, receiver}) ASSERT_EQ(context->destroy(qp), 0);
  ASSERT_EQ(context->destroy(alone), 0);
  move();
}

}  // namespace
}  // namespace ferry::virt::testing
