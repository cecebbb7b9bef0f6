#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "datagram_peers.h"

// Datagrams to UD QPs that have an SRQ: the receives of their SRQs move, and programs know each other by the names
// from before.
namespace ferry::virt::testing {
namespace {

struct SharedDatagrams : DatagramPeers {
  void SetUp() override { start(/*shares_receives=*/true); }
  bool nothing_more(Peer& peer) {
    ibv_wc wc{};
    while (peer.cq->poll(1, &wc) > 0) {
      if ((wc.opcode & IBV_WC_RECV) != 0) return false;
    }
    return true;
  }
};

TEST_F(SharedDatagrams, MoveAtBothEnds) {
  expect_datagram(a, b, 0);
  expect_datagram(b, a, 0);
  const std::uint32_t qpn = a.qp->qpn();
  move(a, kSecond);
  tell(b, a);
  EXPECT_NE(behind(a.qp)->qpn(), qpn) << "another device gave the same number";
  expect_datagram(a, b, 1);
  expect_datagram(b, a, 1);
  move(b, kFourth);
  tell(a, b);
  for (std::size_t slot = 2; slot < 24; ++slot) {
    expect_datagram(a, b, slot);
    expect_datagram(b, a, slot);
  }
  EXPECT_TRUE(nothing_more(a));
  EXPECT_TRUE(nothing_more(b));
}

TEST_F(SharedDatagrams, AreOfSeveralQps) {
  device::Qp* const qps[] = {b.qp, b.make_ud()};
  for (std::size_t slot = 0; slot < 16; ++slot) ASSERT_EQ(b.receive_datagram(slot, slot), 0);
  std::size_t next = 0;
  const auto send_some = [&] {
    for (const std::size_t end = next + 4; next < end; ++next) {
      device::Qp* const to = qps[next % 3 == 0 ? 1 : 0];
      ASSERT_EQ(a.send_to(to->qpn(), 2, 100 + next), 0);
      const ibv_wc wc = b.arrival();
      EXPECT_EQ(wc.wr_id, next);
      EXPECT_EQ(wc.qp_num, to->qpn());
      EXPECT_EQ(wc.src_qp, a.qp->qpn());
      EXPECT_EQ(b.value_in(next), 100 + next);
      EXPECT_EQ(b.addresses_in(next).source, device::address_of(a.gid()));
      EXPECT_EQ(b.addresses_in(next).destination, device::address_of(b.gid()));
    }
  };
  send_some();
  move(b, kFourth);
  tell(a, b);
  send_some();
  move(a, kSecond);
  tell(b, a);
  send_some();
  move(b, kThird);
  tell(a, b);
  send_some();
  EXPECT_TRUE(nothing_more(b));
}

// Anybody may send to the program while it stops: what comes by then has its receive, and the next ones go into the
// next receives.
TEST_F(SharedDatagrams, ComeWhileTheReceiverStops) {
  device::Cq* const first = b.cq;
  device::Cq* second = nullptr;
  ASSERT_EQ(b.context->create_cq({16}, &second), 0);
  b.cq = second;
  device::Qp* const other = b.make_ud();
  for (std::size_t slot = 0; slot < 6; ++slot) ASSERT_EQ(b.receive_datagram(slot, slot), 0);
  b.context->prepare();
  b.stop();
  ASSERT_EQ(a.send_datagram(1, 50), 0);
  ASSERT_EQ(a.send_to(other->qpn(), 1, 51), 0);
  EXPECT_EQ(b.arrival().wr_id, 1u) << "also in the stop; so the one before has come as well";
  b.park();
  ASSERT_EQ(a.send_datagram(1, 999), 0) << "is lost";
  b.device->address = kFourth;
  b.unpark();
  EXPECT_EQ(behind(b.qp)->state(), IBV_QPS_INIT);
  tell(a, b);
  b.context->resume(false);
  b.cq = first;
  EXPECT_EQ(b.arrival().wr_id, 0u);
  for (std::size_t slot = 2; slot < 6; ++slot) {
    ASSERT_EQ(a.send_datagram(1, 50 + slot), 0);
    EXPECT_EQ(b.arrival().wr_id, slot);
    EXPECT_EQ(b.value_in(slot), 50 + slot);
  }
  EXPECT_EQ(b.value_in(0), 50u);
  EXPECT_EQ(b.value_in(1), 51u);
  EXPECT_TRUE(nothing_more(b));
}

// The device says so of each QP of an SRQ that goes to the error state.
TEST_F(SharedDatagrams, TheProgramHearsNothingOfTheErrorStateOfAStop) {
  move(b, kFourth);
  const auto heard = [&] { return b.sink.count(IBV_EVENT_QP_LAST_WQE_REACHED, b.qp); };
  EXPECT_EQ(heard(), 0u);
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(b.qp->modify(error, IBV_QP_STATE), 0);
  EXPECT_TRUE(r::eventually([&] { return heard() == 1; }))
      << "the device does not say so; the test shows nothing";
}

TEST_F(SharedDatagrams, AMoveThatIsGivenUpLeavesTheReceives) {
  for (std::size_t slot = 0; slot < 3; ++slot) ASSERT_EQ(b.receive_datagram(slot, slot), 0);
  b.context->prepare();
  b.stop();
  b.park();
  b.unpark();  // on the same device
  tell(a, b);
  b.context->resume(true);
  for (std::size_t slot = 0; slot < 3; ++slot) {
    ASSERT_EQ(a.send_datagram(1, slot), 0);
    EXPECT_EQ(b.arrival().wr_id, slot);
    EXPECT_EQ(b.value_in(slot), slot);
  }
}

TEST_F(SharedDatagrams, AnSrqThatGrowsFindsItsReceives) {
  move(a, kSecond);
  tell(b, a);
  expect_datagram(a, b, 1);
  ibv_srq_attr larger{};
  larger.max_wr = 40;
  ASSERT_EQ(b.srq->modify(larger, IBV_SRQ_MAX_WR), 0);
  for (std::size_t slot = 2; slot < 32; ++slot) ASSERT_EQ(b.receive_datagram(slot, slot), 0);
  for (std::size_t slot = 2; slot < 32; ++slot) {
    ASSERT_EQ(a.send_datagram(2, slot), 0);
    EXPECT_EQ(b.arrival().src_qp, a.qp->qpn());
    EXPECT_EQ(b.addresses_in(slot).source, device::address_of(a.gid()));
  }
}

TEST_F(SharedDatagrams, WhateverMovesWhenEachIsFilledInOrderAndFromWhomItIs) {
  go_at_random();
}

// A thread makes SRQs beside those that send and receive.
TEST_F(SharedDatagrams, ThreadsGoOnWhileBothMove) {
  use_while_both_move([&] { EXPECT_EQ(b.context->destroy(b.create_srq(4, 1)), 0); });
}

}  // namespace
}  // namespace ferry::virt::testing
