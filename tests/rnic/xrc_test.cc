#include "sim_pair.h"

// XRC (annex A14): initiators of a, one target of b with two XRC SRQs in PDs of their own.
namespace ferry::rnic::testing {
namespace {

struct XrcTest : ::testing::Test, SimPair {
  struct Side {  // of one SRQ
    device::Pd* pd = nullptr;
    device::Cq* cq = nullptr;
    device::Srq* srq = nullptr;
    device::Mr* mr = nullptr;
    std::vector<std::byte> memory = std::vector<std::byte>(8000);
  };
  std::vector<std::byte> ours = pattern(8000, 1);
  device::Mr* mr_a = nullptr;
  device::Xrcd* xrcd = nullptr;
  Side sides[2];
  device::Qp* initiator = nullptr;
  device::Qp* target = nullptr;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open());
    mr_a = a.reg(ours.data(), ours.size());
    ASSERT_EQ(b.context->open_xrcd({}, &xrcd), 0);
    for (Side& side : sides) set_up(side, xrcd);
    ASSERT_NO_FATAL_FAILURE(connect_xrc());
  }
  void set_up(Side& side, device::Xrcd* domain) {
    ASSERT_EQ(b.context->alloc_pd(&side.pd), 0);
    ASSERT_EQ(b.context->create_cq({32}, &side.cq), 0);
    device::SrqInit init;
    init.pd = side.pd;
    init.xrcd = domain;
    init.cq = side.cq;
    init.attributes = {16, 2, 0};
    ASSERT_EQ(b.context->create_srq(&init, &side.srq), 0);
    device::MrInit region{side.pd, side.memory.data(), side.memory.size(),
                          reinterpret_cast<std::uintptr_t>(side.memory.data()),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
    ASSERT_EQ(b.context->reg_mr(region, &side.mr), 0);
  }
  // `other_half`: both QPs get the attributes of both halves.
  void connect_xrc(bool other_half = false) {
    device::QpInit init;
    init.type = IBV_QPT_XRC_SEND;
    init.pd = a.pd;
    init.send_cq = a.cq;
    init.cap = {16, 0, 2, 0, 0};
    ASSERT_EQ(a.context->create_qp(&init, &initiator), 0);
    init = {};
    init.type = IBV_QPT_XRC_RECV;
    init.xrcd = xrcd;
    ASSERT_EQ(b.context->create_qp(&init, &target), 0);
    ibv_qp_attr to_b = attributes(IBV_QPS_INIT, target->qpn(), b.gid());
    ibv_qp_attr to_a = attributes(IBV_QPS_INIT, initiator->qpn(), a.gid());
    to_a.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
    ASSERT_EQ(initiator->modify(to_b, kInitMask), 0);
    ASSERT_EQ(target->modify(to_a, kInitMask), 0);
    to_a.qp_state = to_b.qp_state = IBV_QPS_RTR;
    const int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (other_half) to_b.max_dest_rd_atomic = to_b.min_rnr_timer = 0xFF;
    ASSERT_EQ(initiator->modify(to_b, other_half ? kRtrMask : kRtrMask & ~responder), 0);
    ASSERT_EQ(target->modify(to_a, kRtrMask), 0);
    to_a.qp_state = to_b.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(initiator->modify(to_b, kRtsMask), 0);
    const int requester = IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
    if (other_half) to_a.max_rd_atomic = to_a.retry_cnt = to_a.rnr_retry = 0xFF;
    ASSERT_EQ(target->modify(to_a, other_half ? kRtsMask : kRtsMask & ~requester), 0);
  }
  int receive(unsigned side, std::uint64_t id, std::uint32_t length = 4000) {
    return post_receive(sides[side].srq, id, sides[side].memory.data(), length, sides[side].mr);
  }
  int post(Send send, std::uint32_t srqn) {
    send.wr.sg_list = &send.sge;
    send.wr.qp_type.xrc.remote_srqn = srqn;
    return send.post(initiator);
  }
  int send(std::uint32_t srqn, std::uint64_t id, std::uint32_t length = 100) {
    return post(Send(IBV_WR_SEND, id, ours.data() + id, length, mr_a), srqn);
  }
  void expect_failure(ibv_wc_status status) {
    run();
    const auto completions = drain(a.cq);
    ASSERT_EQ(completions.size(), 1u);
    EXPECT_EQ(completions[0].status, status);
    EXPECT_EQ(target->state(), IBV_QPS_ERR);
    EXPECT_EQ(initiator->state(), IBV_QPS_ERR);
  }
};

TEST_F(XrcTest, EachMessageNamesItsQueue) {
  for (std::uint64_t id = 0; id < 2; ++id) {
    ASSERT_EQ(receive(0, 10 + id), 0);
    ASSERT_EQ(receive(1, 20 + id), 0);
  }
  ASSERT_EQ(send(sides[1].srq->number(), 1, 3000), 0);
  ASSERT_EQ(send(sides[0].srq->number(), 2), 0);
  ASSERT_EQ(send(sides[1].srq->number(), 3), 0);
  run();
  EXPECT_EQ(drain(a.cq).size(), 3u);
  const auto at_0 = drain(sides[0].cq);
  ASSERT_EQ(at_0.size(), 1u);
  EXPECT_EQ(at_0[0].wr_id, 10u);
  EXPECT_EQ(at_0[0].qp_num, target->qpn());
  const auto at_1 = drain(sides[1].cq);
  ASSERT_EQ(at_1.size(), 2u);
  EXPECT_EQ(at_1[0].byte_len, 3000u);
  EXPECT_EQ(at_1[1].wr_id, 21u);
  EXPECT_EQ(std::memcmp(sides[0].memory.data(), ours.data() + 2, 100), 0);
}

// As perftest connects, with values out of their range.
TEST_F(XrcTest, AttributesOfTheOtherHalfAreIgnored) {
  ASSERT_NO_FATAL_FAILURE(connect_xrc(true));
  ASSERT_EQ(receive(0, 1), 0);
  ASSERT_EQ(send(sides[0].srq->number(), 1), 0);
  run();
  EXPECT_EQ(drain(a.cq).at(0).status, IBV_WC_SUCCESS);
}

TEST_F(XrcTest, EmptyQueueIsRnr) {
  ASSERT_EQ(receive(1, 1), 0);  // the other one's WQEs are no help
  ASSERT_EQ(send(sides[0].srq->number(), 1), 0);
  run();
  EXPECT_TRUE(drain(a.cq).empty());
  ASSERT_EQ(receive(0, 5), 0);
  run(std::chrono::milliseconds(20));
  EXPECT_EQ(drain(sides[0].cq).at(0).wr_id, 5u);
  EXPECT_EQ(drain(a.cq).at(0).status, IBV_WC_SUCCESS);
}

TEST_F(XrcTest, AQueueThatDoesNotExistIsAnInvalidRequest) {
  const std::uint32_t wrong = sides[0].srq->number() ^ 0x800000;
  ASSERT_EQ(send(wrong, 1), 0);
  expect_failure(IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(XrcTest, AQueueOfAnotherDomainIsAnInvalidRequest) {
  device::Xrcd* other = nullptr;
  ASSERT_EQ(b.context->open_xrcd({}, &other), 0);
  Side foreign;
  ASSERT_NO_FATAL_FAILURE(set_up(foreign, other));
  ASSERT_EQ(post_receive(foreign.srq, 1, foreign.memory.data(), 100, foreign.mr), 0);
  ASSERT_EQ(send(foreign.srq->number(), 1), 0);
  expect_failure(IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(foreign.memory, std::vector<std::byte>(8000));
}

TEST_F(XrcTest, APlainQueueHasNoNumber) {
  b.create_srq();
  ASSERT_EQ(send(0, 1), 0);
  expect_failure(IBV_WC_REM_INV_REQ_ERR);
}

// Remote keys are those of the PD of the SRQ that the request names.
TEST_F(XrcTest, ThePdOfTheNamedQueueCounts) {
  const auto access = [&](ibv_wr_opcode opcode, unsigned memory, unsigned named) {
    EXPECT_EQ(post(Send(opcode, 1, ours.data(), 2500, mr_a)
                       .remote(sides[memory].memory.data(), sides[memory].mr->rkey()),
                   sides[named].srq->number()),
              0);
  };
  for (unsigned side : {0u, 1u, 0u}) {
    access(IBV_WR_RDMA_WRITE, side, side);
    run();
    EXPECT_EQ(drain(a.cq).at(0).status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(sides[side].memory.data(), ours.data(), 2500), 0);
    access(IBV_WR_RDMA_READ, side, side);
    run();
    EXPECT_EQ(drain(a.cq).at(0).status, IBV_WC_SUCCESS);
  }
  for (ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    ASSERT_NO_FATAL_FAILURE(connect_xrc());
    const auto before = sides[1].memory;
    access(opcode, 1, 0);
    expect_failure(IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(sides[1].memory, before);
  }
}

TEST_F(XrcTest, Atomics) {
  std::uint64_t start = 41;
  std::memcpy(sides[0].memory.data(), &start, 8);
  ASSERT_EQ(post(Send(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, ours.data(), 8, mr_a)
                     .atomic(sides[0].memory.data(), sides[0].mr->rkey(), 1),
                 sides[0].srq->number()),
            0);
  run();
  EXPECT_EQ(drain(a.cq).at(0).opcode, IBV_WC_FETCH_ADD);
  std::uint64_t got = 0;
  std::memcpy(&got, ours.data(), 8);
  EXPECT_EQ(got, 41u);
  std::memcpy(&got, sides[0].memory.data(), 8);
  EXPECT_EQ(got, 42u);
}

// READ responses of one PD between the packets of a message to another.
TEST_F(XrcTest, QueuesMayAlternateWithinTheWindow) {
  for (std::uint64_t id = 0; id < 3; ++id) ASSERT_EQ(receive(1, id), 0);
  const auto content = pattern(4000, 9);
  std::memcpy(sides[0].memory.data(), content.data(), 4000);
  for (std::uint64_t id = 0; id < 3; ++id) {
    ASSERT_EQ(post(Send(IBV_WR_RDMA_READ, id, ours.data() + 4000, 4000, mr_a)
                       .remote(sides[0].memory.data(), sides[0].mr->rkey()),
                   sides[0].srq->number()),
              0);
    ASSERT_EQ(send(sides[1].srq->number(), id, 3500), 0);
  }
  run(std::chrono::milliseconds(20));
  const auto completions = drain(a.cq);
  ASSERT_EQ(completions.size(), 6u);
  for (const ibv_wc& wc : completions) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(ours.data() + 4000, content.data(), 4000), 0);
  EXPECT_EQ(drain(sides[1].cq).size(), 3u);
}

TEST_F(XrcTest, ADestroyedQueueIsGone) {
  ASSERT_EQ(receive(0, 1), 0);
  ASSERT_EQ(send(sides[0].srq->number(), 1), 0);
  run();
  drain(a.cq);
  const std::uint32_t number = sides[0].srq->number();
  ASSERT_EQ(b.context->destroy(sides[0].srq), 0);
  ASSERT_EQ(post(Send(IBV_WR_RDMA_WRITE, 2, ours.data(), 100, mr_a)
                     .remote(sides[0].memory.data(), sides[0].mr->rkey()),
                 number),
            0);
  expect_failure(IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(XrcTest, AnOverflownQueueOfCompletionsFailsItsSrq) {
  Side& side = sides[0];
  const int room = side.cq->capacity();
  for (int i = 0; i <= room; ++i) {
    ASSERT_EQ(receive(0, static_cast<std::uint64_t>(i), 0), 0);
    ASSERT_EQ(send(side.srq->number(), 0, 0), 0);
    run();
    drain(a.cq);
  }
  EXPECT_TRUE(b.sink.saw(IBV_EVENT_CQ_ERR, side.cq));
  EXPECT_EQ(b.sink.count(IBV_EVENT_SRQ_ERR, side.srq), 1u);
  EXPECT_EQ(b.sink.count(IBV_EVENT_SRQ_ERR, sides[1].srq), 0u);
  ASSERT_EQ(receive(0, 99), 0);
  ASSERT_EQ(send(side.srq->number(), 1), 0);
  expect_failure(IBV_WC_REM_INV_REQ_ERR);
}

}  // namespace
}  // namespace ferry::rnic::testing
