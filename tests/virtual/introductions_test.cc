#include "device/gids.h"
#include "two_programs.h"

// Connections that two programs make after one of them has moved, under the GIDs that it had before.
namespace ferry::virt::testing {
namespace {

struct Introductions : UnconnectedPrograms {
  void TestBody() override {}  // for those that play several rounds
  // Nothing waits any more: the next move needs no introduction, but the usual talk.
  void expect_usual_move(Side& side, std::uint32_t address) {
    trace.clear();
    move(side, address);
    const std::string mover = &side == &m ? "m: " : "p: ", peer = &side == &m ? "p: " : "m: ";
    EXPECT_EQ(trace,
              (std::vector<std::string>{mover + "SUSPEND", peer + "SUSPENDED", mover + "SWITCH",
                                        peer + "SWITCHED", mover + "READY"}));
    expect_traffic(900);
  }
};

TEST_F(Introductions, AServerThatHasMoved) {
  ASSERT_EQ(m.receive(1, 1), 0);
  move(m, kSecond);
  EXPECT_TRUE(trace.empty()) << "it has no peer";
  tell(p, {kFirst});
  connect(m, p);
  carry();
  EXPECT_TRUE(trace.empty()) << "the peer is not connected yet";
  connect(p, m);
  ASSERT_EQ(p.send(2, 77), 0) << "held";
  carry();
  EXPECT_EQ(trace,
            (std::vector<std::string>{"m: SUSPEND", "p: SEEK", "p: SUSPENDED", "m: SUSPEND",
                                      "m: SWITCH", "p: SUSPENDED", "p: SWITCHED", "m: READY"}));
  p.completions(1);
  m.completions(1);
  EXPECT_EQ(m.memory[1], 77u);
  EXPECT_TRUE(p.nothing_more());
  expect_traffic(100);
  expect_usual_move(m, kFourth);
}

TEST_F(Introductions, TheClientConnectsFirst) {
  move(m, kSecond);
  tell(p, {kFirst});
  connect(p, m);
  ASSERT_EQ(p.send(2, 77), 0);
  carry();
  EXPECT_TRUE(trace.empty());
  EXPECT_EQ(p.qp->state(), IBV_QPS_RTS);
  EXPECT_EQ(behind(p.qp)->state(), IBV_QPS_INIT) << "nothing goes to where the peer was";
  ASSERT_EQ(m.receive(1, 1), 0);
  connect(m, p);
  carry();
  EXPECT_EQ(trace,
            (std::vector<std::string>{"m: SUSPEND", "p: SEEK", "p: SUSPENDED", "m: SUSPEND",
                                      "m: SWITCH", "p: SUSPENDED", "p: SWITCHED", "m: READY"}));
  p.completions(1);
  m.completions(1);
  EXPECT_EQ(m.memory[1], 77u);
  expect_traffic(100);
  expect_usual_move(p, kFourth);
}

// Its ferryd has not heard of the move yet.
TEST_F(Introductions, TheClientDoesNotKnowOfTheMove) {
  ASSERT_EQ(p.receive(1, 1), 0);
  move(m, kSecond);
  connect(p, m);
  connect(m, p);
  ASSERT_EQ(m.send(2, 77), 0) << "held";
  carry();
  EXPECT_EQ(trace, (std::vector<std::string>{"m: SUSPEND", "p: SUSPENDED", "m: SWITCH",
                                             "p: SWITCHED", "m: READY"}));
  p.completions(1);
  m.completions(1);
  EXPECT_EQ(p.memory[1], 77u) << "the receive of before is there";
  expect_traffic(100);
  expect_usual_move(m, kFourth);
}

TEST_F(Introductions, BothHaveMoved) {
  move(m, kSecond);
  move(p, kFourth);
  for (Side* side : {&m, &p}) tell(*side, {kFirst, kThird});
  connect(m, p);
  connect(p, m);
  ASSERT_EQ(p.receive(1, 1), 0);
  ASSERT_EQ(m.send(2, 77), 0);
  carry();
  p.completions(1);
  m.completions(1);
  EXPECT_EQ(p.memory[1], 77u);
  expect_traffic(100);
  expect_usual_move(p, kThird);
  expect_usual_move(m, kFirst);
}

TEST_F(Introductions, UnreliableConnectionsLoseNothing) {
  for (Side* side : {&m, &p}) {
    ASSERT_EQ(side->context->destroy(side->qp), 0);
    side->qp = side->create_qp({16, 16, 4, 4, 64}, IBV_QPT_UC);
    r::to_init(side->qp);
  }
  move(m, kSecond);
  tell(p, {kFirst});
  constexpr int kUcRtr =
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  const auto to_rts = [](Side& side, Side& peer) {
    const ibv_qp_attr rtr = r::attributes(IBV_QPS_RTR, peer.qp->qpn(), peer.gid());
    const ibv_qp_attr rts = r::attributes(IBV_QPS_RTS, peer.qp->qpn(), peer.gid());
    ASSERT_EQ(side.qp->modify(rtr, kUcRtr), 0);
    ASSERT_EQ(side.qp->modify(rts, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  };
  for (Side* side : {&m, &p}) ASSERT_EQ(side->receive(1, 1), 0);
  to_rts(m, p);
  ASSERT_EQ(m.send(2, 77), 0) << "held: the peer is not connected, and would drop it";
  to_rts(p, m);
  ASSERT_EQ(p.send(2, 78), 0);
  carry();
  m.completions(2);
  p.completions(2);
  EXPECT_EQ(p.memory[1], 77u);
  EXPECT_EQ(m.memory[1], 78u);
}

// Some other program has moved away from there.
TEST_F(Introductions, AServerThatHasNotMoved) {
  tell(p, {kFirst});
  connect(p, m);
  ASSERT_EQ(p.send(2, 77), 0);
  ASSERT_EQ(m.receive(1, 1), 0);
  connect(m, p);
  carry();
  EXPECT_EQ(trace, (std::vector<std::string>{"p: SEEK", "m: GO_ON"}));
  p.completions(1);
  m.completions(1);
  EXPECT_EQ(m.memory[1], 77u);
  EXPECT_EQ(behind(p.qp)->qpn(), p.qp->qpn());
  expect_traffic(100);
  expect_usual_move(m, kSecond);
}

TEST_F(Introductions, NeitherHasMoved) {
  for (Side* side : {&m, &p}) {
    tell(*side, {kFirst, kThird});
    ASSERT_EQ(side->receive(1, 1), 0);
  }
  connect(p, m);
  connect(m, p);
  for (Side* side : {&m, &p}) ASSERT_EQ(side->send(2, 77), 0);
  carry();
  EXPECT_EQ(trace, (std::vector<std::string>{"m: SEEK", "p: SEEK", "p: GO_ON", "m: GO_ON"}));
  for (Side* side : {&m, &p}) {
    side->completions(2);
    EXPECT_EQ(side->memory[1], 77u);
  }
  expect_usual_move(m, kSecond);
}

TEST_F(Introductions, AServerThatIsNotUnderFerry) {
  tell(p, {kFirst});
  connect(p, m);
  ASSERT_EQ(p.send(2, 77), 0);
  ASSERT_EQ(m.receive(1, 1), 0);
  std::vector<device::Letter> letters;
  p.context->take_letters(&letters);
  ASSERT_EQ(letters.size(), 1u);
  connect(m, p);
  device::Letter returned{letters[0].to, letters[0].from, {}};
  EXPECT_EQ(p.context->deliver(returned), 0);
  p.completions(1);
  m.completions(1);
  EXPECT_EQ(m.memory[1], 77u);
  EXPECT_EQ(p.context->deliver(returned), 0) << "out of turn";
  expect_traffic(100);
}

TEST_F(Introductions, KeysOfBeforeTheMove) {
  move(m, kSecond);
  tell(p, {kFirst});
  ASSERT_NE(behind(m.mr)->rkey(), m.mr->rkey());
  connect(m, p);
  connect(p, m);
  p.memory[5] = 55;
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, &p.memory[5], 8, p.mr)
                .remote(&m.memory[6], m.mr->rkey())
                .post(p.qp),
            0);
  carry();
  p.completions(1);
  EXPECT_EQ(m.memory[6], 55u);
}

TEST_F(Introductions, WhatAProgramSeesMeanwhile) {
  tell(p, {kFirst});
  ibv_qp_attr wanted = r::attributes(IBV_QPS_RTR, m.qp->qpn(), m.gid());
  EXPECT_EQ(p.qp->modify(wanted, r::kRtrMask & ~IBV_QP_RQ_PSN), EINVAL);
  EXPECT_EQ(p.qp->state(), IBV_QPS_INIT);
  ASSERT_EQ(p.qp->modify(wanted, r::kRtrMask), 0);
  EXPECT_EQ(p.qp->state(), IBV_QPS_RTR);
  EXPECT_EQ(p.send(1, 1), EINVAL) << "not in RTR";
  ASSERT_EQ(p.qp->modify(r::attributes(IBV_QPS_RTS, 0, {}), r::kRtsMask), 0);
  ibv_qp_attr seen{};
  ASSERT_EQ(p.qp->query(&seen), 0);
  EXPECT_EQ(seen.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(seen.dest_qp_num, m.qp->qpn());
  EXPECT_EQ(seen.rq_psn, wanted.rq_psn);
  EXPECT_EQ(seen.path_mtu, wanted.path_mtu);
  std::vector<device::QpStatus> status;
  p.context->status(&status);
  ASSERT_EQ(status.size(), 1u);
  EXPECT_EQ(status[0].state, IBV_QPS_RTS);
  EXPECT_EQ(p.qp->modify(r::attributes(IBV_QPS_SQD, 0, {}), IBV_QP_STATE), EINVAL);
  for (std::uint64_t id = 0; id < 16; ++id) ASSERT_EQ(p.send(id, id), 0);
  EXPECT_EQ(p.send(16, 16), ENOMEM) << "as many as its send queue takes";
}

TEST_F(Introductions, AQpThatFailsMeanwhile) {
  tell(p, {kFirst});
  connect(p, m);
  ASSERT_EQ(p.receive(1, 1), 0);
  ASSERT_EQ(p.send(2, 77), 0);
  ASSERT_EQ(p.qp->modify(r::attributes(IBV_QPS_ERR, 0, {}), IBV_QP_STATE), 0);
  EXPECT_EQ(p.qp->state(), IBV_QPS_ERR);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(wait_completion(p.cq).status, IBV_WC_WR_FLUSH_ERR);
  connect(m, p);
  carry();
  EXPECT_EQ(p.qp->state(), IBV_QPS_ERR);
}

TEST_F(Introductions, AQpThatIsResetMeanwhile) {
  move(m, kSecond);
  tell(p, {kFirst});
  connect(p, m);
  ASSERT_EQ(p.send(2, 77), 0);
  ASSERT_EQ(p.qp->modify(r::attributes(IBV_QPS_RESET, 0, {}), IBV_QP_STATE), 0);
  EXPECT_EQ(p.qp->state(), IBV_QPS_RESET);
  r::to_init(p.qp);
  connect(p, m);
  connect(m, p);
  carry();
  expect_traffic(100);
  EXPECT_TRUE(p.nothing_more()) << "what was held is gone with the reset";
}

TEST_F(Introductions, AQpThatEndsMeanwhile) {
  move(m, kSecond);
  tell(p, {kFirst});
  connect(m, p);
  connect(p, m);
  ASSERT_EQ(p.send(2, 77), 0);
  ASSERT_EQ(p.context->destroy(p.qp), 0);
  carry();
  ASSERT_FALSE(m.letters.empty());
  for (const device::Letter& letter : m.letters)
    EXPECT_EQ(m.context->deliver({letter.to, letter.from, {}}), 0);
  EXPECT_EQ(behind(m.qp)->state(), IBV_QPS_INIT) << "nobody could connect with it without its news";
  EXPECT_TRUE(m.context->awaits_letters());
  // Another one comes in its place.
  p.qp = p.create_qp();
  r::to_init(p.qp);
  ASSERT_EQ(m.qp->modify(r::attributes(IBV_QPS_RESET, 0, {}), IBV_QP_STATE), 0);
  m.letters.clear();
  r::to_init(m.qp);
  connect(m, p);
  connect(p, m);
  carry();
  expect_traffic(100);
}

// A peer that is not connected cannot be told of another move.
TEST_F(Introductions, TheServerCannotMoveOnMeanwhile) {
  move(m, kSecond);
  tell(p, {kFirst});
  ASSERT_EQ(m.receive(1, 1), 0);
  connect(m, p);
  ASSERT_EQ(m.send(3, 78), 0);
  m.context->suspend_peers();
  carry();
  EXPECT_FALSE(m.context->peers_are_suspended());
  std::uint32_t unacked = 0;
  EXPECT_EQ(m.context->quiesce(std::chrono::seconds(1), &unacked), EBUSY);
  ASSERT_EQ(p.receive(1, 1), 0);
  connect(p, m);
  ASSERT_EQ(p.send(2, 77), 0);
  carry();
  p.completions(2);
  m.completions(2);
  EXPECT_EQ(m.memory[1], 77u);
  EXPECT_EQ(p.memory[1], 78u);
  expect_traffic(100);
  expect_usual_move(m, kFourth);
}

// The peer has answered before the introduction is over.
TEST_F(Introductions, TheClientMovesMeanwhile) {
  move(m, kSecond);
  tell(p, {kFirst});
  for (Side* side : {&m, &p}) ASSERT_EQ(side->receive(1, 1), 0);
  connect(p, m);
  ASSERT_EQ(p.send(2, 77), 0);
  p.context->suspend_peers();
  EXPECT_FALSE(p.context->peers_are_suspended());
  connect(m, p);
  ASSERT_EQ(m.send(3, 78), 0);
  ASSERT_TRUE(carry_once(p, m, "p: "));  // SEEK, SUSPEND
  ASSERT_TRUE(carry_once(m, p, "m: "));  // SUSPEND, SUSPENDED
  EXPECT_TRUE(p.context->peers_are_suspended());
  p.stop();
  carry();
  p.park();
  p.device->address = kFourth;
  p.unpark();
  p.context->resume(false);
  carry();
  p.completions(2);
  m.completions(2);
  EXPECT_EQ(m.memory[1], 77u);
  EXPECT_EQ(p.memory[1], 78u);
  expect_traffic(100);
  expect_usual_move(m, kFirst);
}

// A move that is given up while the answer to an introduction is on its way.
TEST_F(Introductions, AStopInTheMidst) {
  move(m, kSecond);
  tell(p, {kFirst});
  connect(p, m);
  connect(m, p);
  ASSERT_TRUE(carry_once(m, p, "m: "));
  m.context->suspend_peers();
  ASSERT_TRUE(carry_once(m, p, "m: "));
  ASSERT_TRUE(carry_once(p, m, "p: "));
  EXPECT_TRUE(m.context->peers_are_suspended());
  m.stop();
  carry();
  m.context->resume(true);
  carry();
  expect_traffic(100);
  expect_usual_move(m, kFourth);
}

TEST_F(Introductions, AMoveThatIsGivenUpBeforeThePeerIsSuspended) {
  move(m, kSecond);
  tell(p, {kFirst});
  connect(m, p);
  connect(p, m);
  m.context->suspend_peers();
  m.context->release_peers();
  carry();
  expect_traffic(100);
  expect_usual_move(p, kFourth);
}

TEST_F(Introductions, AMoveWaitsForTheEndOfAnIntroduction) {
  move(m, kSecond);
  tell(p, {kFirst});
  connect(p, m);
  connect(m, p);
  ASSERT_TRUE(carry_once(m, p, "m: "));
  ASSERT_TRUE(carry_once(p, m, "p: "));
  m.context->suspend_peers();
  EXPECT_FALSE(m.context->peers_are_suspended()) << "SWITCH is on its way";
  std::uint32_t unacked = 0;
  EXPECT_EQ(m.context->quiesce(std::chrono::seconds(1), &unacked), EBUSY);
  m.context->suspend_peers();
  carry();
  EXPECT_FALSE(m.context->peers_are_suspended()) << "now its peer is asked";
  carry();
  EXPECT_TRUE(m.context->peers_are_suspended());
  m.context->release_peers();
  carry();
  expect_traffic(100);
}

// Each letter of an introduction is lost once with the ferryd that carries it.
TEST_F(Introductions, LettersThatAreLostAreWrittenAgain) {
  for (std::size_t lost = 0; lost < 8; ++lost) {
    SCOPED_TRACE(lost);
    Introductions round;
    round.SetUp();
    Side &moved = round.m, &client = round.p;
    round.move(moved, kSecond);
    tell(client, {kFirst});
    connect(client, moved);
    connect(moved, client);
    std::size_t at = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (moved.context->awaits_letters() || client.context->awaits_letters()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      bool some = false;
      for (Side* side : {&moved, &client}) {
        std::vector<device::Letter> letters;
        side->context->take_letters(&letters);
        for (const device::Letter& letter : letters) {
          some = true;
          if (at++ != lost) {
            EXPECT_EQ((side == &moved ? client : moved).context->deliver(letter), 0);
          }
        }
        side->context->progress();
      }
      if (some) continue;
      for (Side* side : {&moved, &client}) side->context->repeat_letters();
    }
    round.carry();
    round.expect_traffic(100);
    round.expect_usual_move(client, kFourth);
  }
}

TEST_F(Introductions, ConnectionsWithinTheProgram) {
  device::Qp* other = m.create_qp();
  r::to_init(other);
  move(m, kSecond);
  tell(m, {kFirst});
  r::to_rts(m.qp, other->qpn(), m.gid());
  r::to_rts(other, m.qp->qpn(), m.gid());
  carry();
  EXPECT_TRUE(trace.empty());
  ASSERT_EQ(r::post_receive(other, 1, &m.memory[1], 8, m.mr), 0);
  ASSERT_EQ(m.send(2, 77), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(wait_completion(m.cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(m.memory[1], 77u);
}

// Of QPs that are made after the move, under the GID from before.
TEST_F(Introductions, NewConnectionsWithinTheProgram) {
  move(m, kSecond);
  device::Qp *first = m.create_qp(), *second = m.create_qp();
  for (device::Qp* qp : {first, second}) r::to_init(qp);
  r::to_rts(first, second->qpn(), m.gid());
  r::to_rts(second, first->qpn(), m.gid());
  ASSERT_EQ(r::post_receive(second, 1, &m.memory[1], 8, m.mr), 0);
  const std::uint64_t value = 77;
  ASSERT_EQ(
      Send(IBV_WR_SEND, 2, &value, 8, nullptr, IBV_SEND_SIGNALED | IBV_SEND_INLINE).post(first), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(wait_completion(m.cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(m.memory[1], 77u);
}

// --- By rdma_cm, which names the GID of the new host as the source

// The peer's GID is one that the program has had itself.
struct OnTheFormerHost : TwoPrograms {
  void SetUp() override {
    m.open(kFirst);
    p.start(kFirst);
    move(m, kSecond);
    m.qp = m.create_qp();
    m.mr = m.reg(m.memory.data(), sizeof m.memory);
    for (Side* side : {&m, &p}) r::to_init(side->qp);
  }
  void connect() {
    const std::uint8_t source = device::name_gid({m.context.get()}, 1, 0);
    ibv_gid_entry here{};
    ASSERT_EQ(m.context->query_gid(1, source, &here), 0);
    r::to_rts(m.qp, p.qp->qpn(), p.gid(), source);
    r::to_rts(p.qp, m.qp->qpn(), here.gid);
    carry();
  }
};

TEST_F(OnTheFormerHost, APeerIsFound) {
  connect();
  EXPECT_TRUE(trace.empty()) << "neither has anything to say";
  expect_traffic(100);
}

TEST_F(OnTheFormerHost, APeerThatMayHaveMovedIsFound) {
  m.context->moved({{port::Address::from_ipv4(kFirst)}, {}});
  connect();
  EXPECT_EQ(trace, (std::vector<std::string>{"m: SEEK", "p: GO_ON"}));
  expect_traffic(100);
}

}  // namespace
}  // namespace ferry::virt::testing
