#include "xrc.h"

// Two programs that are connected by XRC in either direction. One of them moves, or both do: the other one learns the
// new numbers of SRQs and keys.
namespace ferry::virt::testing {
namespace {

struct XrcPeers : TwoEnds<XrcEnd> {
  void SetUp() override {
    m.start(kFirst);
    p.start(kThird);
    m.connect(p);
    p.connect(m);
    m.context->prepare();
    p.context->prepare();
  }
  std::vector<XrcEnd*> both() { return {&m, &p}; }
  XrcEnd& other(XrcEnd* end) { return end == &m ? p : m; }
  // A message to each SRQ. `id`: of the receives.
  void expect_traffic(std::uint64_t id) {
    for (XrcEnd* to : both()) {
      for (int queue : {0, 1}) {
        to->receive(queue, id, id);
        EXPECT_EQ(pass(other(to), *to, queue, 10 * id), id);
      }
    }
    EXPECT_TRUE(m.nothing_more());
    EXPECT_TRUE(p.nothing_more());
  }
};

TEST_F(XrcPeers, OneMoves) {
  expect_traffic(1);
  suspend(m);
  m.stop();
  for (device::Qp* qp : {m.initiator, m.target}) EXPECT_EQ(behind(qp), nullptr) << "it was idle";
  m.park();
  m.device->address = kSecond;
  trace.clear();
  m.unpark();
  m.context->resume(false);
  carry();
  // One talk for each QP.
  EXPECT_EQ(std::count(trace.begin(), trace.end(), "m: SWITCH"), 2);
  EXPECT_EQ(std::count(trace.begin(), trace.end(), "p: SWITCHED"), 2);
  EXPECT_EQ(std::count(trace.begin(), trace.end(), "m: READY"), 2);
  expect_traffic(2);
}

TEST_F(XrcPeers, EachMovesAgainAndAgain) {
  std::uint64_t id = 1;
  for (const std::uint32_t address : {kSecond, kFirst}) {
    move(m, address);
    expect_traffic(++id);
    move(p, address + 2);
    expect_traffic(++id);
  }
}

TEST_F(XrcPeers, BothMoveAtTheSameTime) {
  for (XrcEnd* end : both()) end->context->suspend_peers();
  carry();
  for (XrcEnd* end : both()) {
    ASSERT_TRUE(end->context->peers_are_suspended());
    end->stop();
  }
  m.park();
  p.park();
  m.device->address = kSecond;
  p.device->address = kFourth;
  for (XrcEnd* end : both()) end->unpark();
  for (XrcEnd* end : both()) end->context->resume(false);
  carry();
  expect_traffic(1);
}

// The receives that wait move with the program, and what the peer sends meanwhile takes them in order.
TEST_F(XrcPeers, WhatIsSentMeanwhileIsReceivedInOrder) {
  m.receive(0, 1, 5);
  ASSERT_EQ(p.send(m.queues[0].srq->number(), 100), 0);
  suspend(m);
  ASSERT_EQ(p.send(m.queues[0].srq->number(), 101), 0);
  m.stop();
  ASSERT_EQ(m.send(p.queues[1].srq->number(), 200), 0);
  m.park();
  m.receive(0, 6, 6);
  m.device->address = kSecond;
  m.unpark();
  p.receive(1, 1, 1);
  ASSERT_EQ(p.send(m.queues[0].srq->number(), 102), 0);
  m.context->resume(false);
  carry();
  for (std::uint64_t id = 1; id <= 3; ++id) {
    EXPECT_EQ(m.received(0), id);
    p.expect_sent();
    EXPECT_EQ(m.queues[0].memory[id], 99 + id);
  }
  EXPECT_EQ(p.received(1), 1u);
  m.expect_sent();
  for (std::uint64_t id = 4; id <= 6; ++id) EXPECT_EQ(pass(p, m, 0, id), id);
}

TEST_F(XrcPeers, KeysOfAllSrqsFollow) {
  std::uint64_t there = 77;
  device::Mr* source = p.reg(&there, sizeof there);
  for (const std::uint32_t address : {kSecond, kFirst}) {
    move(m, address);
    for (XrcEnd::Queue& queue : m.queues) {
      queue.memory[9] = 0;
      Send write(IBV_WR_RDMA_WRITE, 3, &there, 8, source);
      write.wr.wr.rdma = {reinterpret_cast<std::uintptr_t>(&queue.memory[9]), queue.mr->rkey()};
      ASSERT_EQ(p.post(write, queue.srq->number()), 0);
      p.expect_sent(3);
      EXPECT_EQ(queue.memory[9], 77u);
    }
  }
}

// The PD had no SRQ of the domain when p was told of the keys.
TEST_F(XrcPeers, KeysOfAnSrqOfLaterAreKnown) {
  ASSERT_EQ(m.context->destroy(m.queues[1].srq), 0);
  move(m, kSecond);
  m.make_srq(&m.queues[1]);
  XrcEnd::Queue& queue = m.queues[1];
  std::uint64_t there = 77;
  Send write(IBV_WR_RDMA_WRITE, 3, &there, 8, nullptr, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  write.wr.wr.rdma = {reinterpret_cast<std::uintptr_t>(&queue.memory[9]), queue.mr->rkey()};
  ASSERT_EQ(p.post(write, queue.srq->number()), 0);
  p.expect_sent(3);
  EXPECT_EQ(queue.memory[9], 77u);
}

// A window of the PD of an SRQ, bound by an initiator of that PD.
TEST_F(XrcPeers, MemoryWindowsFollow) {
  std::uint64_t here[4] = {};
  device::Mr* beneath = m.reg(here, sizeof here, XrcEnd::kRemote | IBV_ACCESS_MW_BIND);
  device::SrqInit init;
  init.pd = m.pd;
  init.xrcd = m.xrcd;
  init.cq = m.queues[0].cq;
  init.attributes = {8, 1, 0};
  device::Srq* srq = nullptr;
  ASSERT_EQ(m.context->create_srq(&init, &srq), 0);
  device::Mw* window = nullptr;
  ASSERT_EQ(m.context->alloc_mw(m.pd, IBV_MW_TYPE_1, &window), 0);
  device::MwBind bind;
  bind.wr_id = 4;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.mr = beneath;
  bind.address = reinterpret_cast<std::uintptr_t>(here);
  bind.length = sizeof here;
  bind.access = IBV_ACCESS_REMOTE_WRITE;
  std::uint32_t rkey = 0;
  ASSERT_EQ(m.initiator->bind_mw(window, bind, &rkey), 0);
  m.expect_sent(4);
  std::uint64_t value = 50;
  for (const std::uint32_t address : {kSecond, kFirst, kSecond}) {
    Send write(IBV_WR_RDMA_WRITE, 5, &++value, 8, nullptr, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    write.wr.wr.rdma = {reinterpret_cast<std::uintptr_t>(&here[1]), rkey};
    ASSERT_EQ(p.post(write, srq->number()), 0);
    p.expect_sent(5);
    EXPECT_EQ(here[1], value);
    move(m, address);
  }
}

// A CQ outlives the target, whose QPN is another one on the device since the peer has moved.
TEST_F(XrcPeers, CompletionsOfATargetThatHasEndedKeepItsNumber) {
  move(m, kSecond);
  p.receive(0, 1, 2);
  for (std::uint64_t value : {1, 2}) {
    ASSERT_EQ(m.send(p.queues[0].srq->number(), value), 0);
    m.expect_sent();
  }
  const std::uint32_t qpn = p.target->qpn();
  ASSERT_NE(behind(p.target)->qpn(), qpn);
  ASSERT_EQ(p.context->destroy(p.target), 0);
  for (std::uint64_t id : {1, 2}) {
    const ibv_wc wc = wait_completion(p.queues[0].cq);
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.qp_num, qpn);
  }
}

// The target of p has another QPN by then than when the CQ was made.
TEST_F(XrcPeers, AnSrqThatIsMadeAfterThePeersMoveGetsTheKnownNumber) {
  device::Cq* const early = p.queues[1].cq;
  ASSERT_EQ(p.context->destroy(p.queues[1].srq), 0);
  move(m, kSecond);
  EXPECT_NE(behind(p.target)->qpn(), p.target->qpn());
  p.make_srq(&p.queues[1]);
  EXPECT_EQ(p.queues[1].cq, early);
  expect_traffic(1);
}

TEST_F(XrcPeers, AMoveThatIsGivenUpLetsBothGoOn) {
  m.receive(0, 1, 2);
  suspend(m);
  ASSERT_EQ(p.send(m.queues[0].srq->number(), 100), 0);
  m.stop();
  m.context->resume(true);
  carry();
  EXPECT_EQ(m.received(0), 1u);
  p.expect_sent();
  EXPECT_EQ(pass(p, m, 0, 101), 2u);
  expect_traffic(9);
}

// A connection that is made when an end has moved, under the address from before.
TEST_F(XrcPeers, ConnectAfterAMove) {
  const ibv_gid known = m.gid();
  move(m, kSecond);
  p.context->moved({{port::Address::from_ipv4(kFirst)}, {}});
  device::Qp* others[2] = {};
  for (int i : {0, 1}) {
    device::QpInit init;
    if (i == 0) {
      init.type = IBV_QPT_XRC_RECV;
      init.xrcd = m.xrcd;
    } else {
      init.type = IBV_QPT_XRC_SEND;
      init.pd = p.pd;
      init.send_cq = p.cq;
      init.cap = {16, 0, 2, 0, 64};
    }
    ASSERT_EQ((i == 0 ? m : p).context->create_qp(&init, &others[i]), 0);
    Program::init(others[i]);
  }
  r::to_rts(others[0], others[1]->qpn(), p.gid());
  r::to_rts(others[1], others[0]->qpn(), known);
  carry();
  std::swap(m.target, others[0]);
  std::swap(p.initiator, others[1]);
  for (int queue : {0, 1}) {
    m.receive(queue, 1, 1);
    EXPECT_EQ(pass(p, m, queue, 5), 1u);
  }
}

}  // namespace
}  // namespace ferry::virt::testing
