#include <atomic>
#include <thread>

#include "datagram_peers.h"

// Datagrams between two programs, over devices that know nothing of moves: each program knows the
// other one by the GID and the QPN from the beginning, wherever they are.
namespace ferry::virt::testing {
namespace {

struct Datagrams : DatagramPeers {};

TEST_F(Datagrams, AProgramThatHasMovedIsReachedAndKnownByItsNameFromBefore) {
  expect_datagram(a, b, 0);
  expect_datagram(b, a, 0);
  const std::uint32_t qpn = a.qp->qpn();
  move(a, kSecond);
  tell(b, a);
  EXPECT_EQ(a.qp->qpn(), qpn);
  EXPECT_NE(behind(a.qp)->qpn(), qpn) << "another device gave the same number";
  for (std::size_t slot = 1; slot < 6; ++slot) {
    expect_datagram(a, b, slot);
    expect_datagram(b, a, slot);
  }
}

TEST_F(Datagrams, BothEndsMove) {
  move(a, kSecond);
  move(b, kFourth);
  tell(a, b);
  tell(b, a);
  expect_datagram(a, b, 1);
  expect_datagram(b, a, 1);
  move(a, kFirst);
  tell(b, a);
  expect_datagram(a, b, 2);
  expect_datagram(b, a, 2);
  move(b, kSecond);
  tell(a, b);
  expect_datagram(b, a, 3);
  expect_datagram(a, b, 3);
}

TEST_F(Datagrams, OneGoesToWhereTheOtherHasBegun) {
  move(a, kSecond);
  tell(b, a);
  move(b, kFirst);
  tell(a, b);
  expect_datagram(a, b, 1);
  expect_datagram(b, a, 1);
  move(a, kThird);
  tell(b, a);
  expect_datagram(a, b, 2);
  expect_datagram(b, a, 2);
}

TEST_F(Datagrams, ReceivesOfBeforeAreFilledInOrderWithWhatTheProgramKnows) {
  for (std::size_t slot = 0; slot < 8; ++slot) ASSERT_EQ(b.receive_datagram(slot, 1), 0);
  for (std::uint64_t value = 0; value < 3; ++value) ASSERT_EQ(a.send_datagram(2, value), 0);
  for (int i = 0; i < 3; ++i) b.arrival();
  move(b, kFourth);
  tell(a, b);
  move(a, kSecond);
  tell(b, a);
  for (std::uint64_t value = 3; value < 8; ++value) ASSERT_EQ(a.send_datagram(2, value), 0);
  for (std::size_t slot = 3; slot < 8; ++slot) {
    EXPECT_EQ(b.arrival().src_qp, a.qp->qpn());
    EXPECT_EQ(b.value_in(slot), slot);
    EXPECT_EQ(b.addresses_in(slot).source, device::address_of(a.gid()));
    EXPECT_EQ(b.addresses_in(slot).destination, device::address_of(b.gid()));
  }
}

TEST_F(Datagrams, WhatIsSentInAStopGoesOutAfterIt) {
  ASSERT_EQ(b.receive_datagram(0, 1), 0);
  ASSERT_EQ(b.receive_datagram(1, 1), 0);
  a.context->prepare();
  a.stop();
  ASSERT_EQ(a.send_datagram(2, 41), 0);
  a.park();
  ASSERT_EQ(a.send_datagram(2, 42), 0);
  a.device->address = kSecond;
  a.unpark();
  tell(b, a);
  a.context->resume(false);
  EXPECT_EQ(b.arrival().src_qp, a.qp->qpn());
  EXPECT_EQ(b.arrival().src_qp, a.qp->qpn());
  EXPECT_EQ(b.value_in(0), 41u);
  EXPECT_EQ(b.value_in(1), 42u);
}

// The receives that wait are in the device's queue already: a program that posts one for each datagram
// that comes would find it full.
TEST_F(Datagrams, NoneComesBeforeTheProgramGoesOn) {
  for (std::size_t slot = 0; slot < 16; ++slot) ASSERT_EQ(a.receive_datagram(slot, 1), 0);
  a.context->prepare();
  a.stop();
  a.park();
  a.device->address = kSecond;
  a.unpark();
  tell(b, a);
  EXPECT_EQ(behind(a.qp)->state(), IBV_QPS_INIT);
  a.context->resume(false);
  EXPECT_EQ(behind(a.qp)->state(), IBV_QPS_RTS);
  EXPECT_EQ(a.qp->state(), IBV_QPS_RTS);
  for (std::size_t slot = 0; slot < 16; ++slot) {
    ASSERT_EQ(b.send_datagram(2, slot), 0);
    a.arrival();
    EXPECT_EQ(a.value_in(slot), slot);
    ASSERT_EQ(a.receive_datagram(16 + slot, 1), 0);
  }
}

TEST_F(Datagrams, AnAhThatIsMadeAfterAMoveLeadsToWhereTheProgramIs) {
  move(a, kSecond);
  tell(b, a);
  ASSERT_EQ(b.context->destroy(b.to_other), 0);
  b.know(a);
  expect_datagram(b, a, 0);
  move(b, kFourth);
  tell(a, b);
  ASSERT_EQ(b.context->destroy(b.to_other), 0);
  b.know(a);
  expect_datagram(b, a, 1);
  expect_datagram(a, b, 1);
}

TEST_F(Datagrams, AQpThatIsMadeAfterAMoveIsKnownByTheGidFromBefore) {
  move(a, kSecond);
  device::Qp* const first = a.qp;
  a.qp = a.make_ud();
  tell(b, a);
  b.know(a);
  expect_datagram(b, a, 0);
  expect_datagram(a, b, 0);
  ASSERT_EQ(a.context->destroy(a.qp), 0);
  a.qp = first;
  tell(b, a);
  b.know(a);
  expect_datagram(b, a, 1);
  EXPECT_EQ(a.context->moved_datagram_qps().qpns.size(), 1u);
}

TEST_F(Datagrams, ADatagramToOneThatHasNotMovedGoesStraightThere) {
  Peer c;
  c.start_ud(kFirst);  // beside a
  move(a, kSecond);
  tell(b, a);
  c.know(b);
  ASSERT_EQ(c.receive_datagram(0, 1), 0);
  ASSERT_EQ(b.send_to(c.qp->qpn(), 2, 9), 0);
  EXPECT_EQ(c.arrival().src_qp, b.qp->qpn());
  EXPECT_EQ(c.value_in(0), 9u);
  // Nor does one of a's that stays with c, under the GID that a knows as its own.
  a.to_other = a.ah_to(a.gid());
  ASSERT_EQ(c.receive_datagram(1, 1), 0);
  ASSERT_EQ(a.send_to(c.qp->qpn(), 2, 10), 0);
  c.arrival();
  EXPECT_EQ(c.value_in(1), 10u);
}

TEST_F(Datagrams, AProgramReachesItselfAfterAMove) {
  a.to_other = a.ah_to(a.gid());
  a.others_qpn = a.qp->qpn();
  move(a, kSecond);
  expect_datagram(a, a, 0);
  expect_datagram(a, a, 1);
}

TEST_F(Datagrams, AReceiveWhoseRequestsNameAnotherAddressIsFoundInMemory) {
  device::MrInit init;
  init.pd = b.pd;
  init.address = b.slots.data();
  init.length = b.slots.size();
  init.iova = 0;
  init.access = IBV_ACCESS_LOCAL_WRITE;
  device::Mr* mr = nullptr;
  ASSERT_EQ(b.context->reg_mr(init, &mr), 0);
  move(a, kSecond);
  tell(b, a);
  ibv_sge sges[2] = {{2 * kSlot, 13, mr->lkey()}, {2 * kSlot + 13, kSlot - 13, mr->lkey()}};
  ibv_recv_wr wr{};
  wr.wr_id = 5;
  wr.sg_list = sges;
  wr.num_sge = 2;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(b.qp->post_recv(&wr, &bad), 0);
  ASSERT_EQ(a.send_datagram(6, 77), 0);
  EXPECT_EQ(b.arrival().src_qp, a.qp->qpn());
  EXPECT_EQ(b.value_in(2), 77u);
  EXPECT_EQ(b.addresses_in(2).source, device::address_of(a.gid()));
}

TEST_F(Datagrams, AQpThatWasResetFindsItsReceives) {
  for (std::size_t slot = 0; slot < 3; ++slot) ASSERT_EQ(b.receive_datagram(slot, 1), 0);
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(b.qp->modify(reset, IBV_QP_STATE), 0);
  ibv_qp_attr again{};
  again.port_num = 1;
  again.qkey = kQkey;
  for (const auto& [state, mask] :
       {std::pair(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
        std::pair(IBV_QPS_RTR, 0), std::pair(IBV_QPS_RTS, int{IBV_QP_SQ_PSN})}) {
    again.qp_state = state;
    ASSERT_EQ(b.qp->modify(again, IBV_QP_STATE | mask), 0);
  }
  move(a, kSecond);
  tell(b, a);
  expect_datagram(a, b, 4);
}

TEST_F(Datagrams, ANumberByWhichAnotherProgramIsKnownIsGivenToNobody) {
  // Two programs that began at kFirst: the numbers of the one that has left are free in the device.
  Peer c;
  c.start_ud(kFirst);
  const std::uint32_t next = c.make_ud()->qpn() + 1;
  device::DatagramQps left;
  left.gids = {{device::address_of(c.gid()), port::Address::from_ipv4(kSecond)}};
  left.qpns = {{next, 5}, {next + 1, 6}};
  c.context->moved({{}, {left}});
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t qpn = c.make_ud()->qpn();
    EXPECT_NE(qpn, next);
    EXPECT_NE(qpn, next + 1);
  }
}

TEST_F(Datagrams, GroupsAreThoseFromBefore) {
  ibv_gid group{};
  group.raw[10] = group.raw[11] = 0xff;
  group.raw[12] = 239;
  group.raw[15] = 5;
  ASSERT_EQ(a.qp->attach_mcast(group, 0), 0);
  move(a, kFirst);
  EXPECT_EQ(a.qp->detach_mcast(group, 0), 0);
  EXPECT_EQ(a.qp->detach_mcast(group, 0), EINVAL);
  move(a, kFirst);
  EXPECT_EQ(a.qp->detach_mcast(group, 0), EINVAL);
}

// FERRY_SEED plays one again.
TEST_F(Datagrams, WhateverMovesWhenEachIsFilledInOrderAndFromWhomItIs) {
  go_at_random();
}

// A thread makes AHs beside those that send and receive.
TEST_F(Datagrams, ThreadsGoOnWhileBothMove) {
  const ibv_gid gid = device::gid_of(device::address_of(b.gid()));
  use_while_both_move([&] {
    device::Ah* ah = a.ah_to(gid);
    EXPECT_EQ(a.context->destroy(ah), 0);
  });
}

}  // namespace
}  // namespace ferry::virt::testing
