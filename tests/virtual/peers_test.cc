#include "two_programs.h"

// Two programs with a connection between them, one or both of which move.
namespace ferry::virt::testing {
namespace {

struct Peers : TwoPrograms {
  void SetUp() override {
    m.start();
    p.start();
    m.connect(m.qp, p.qp);
    m.context->prepare();
    p.context->prepare();
  }
};

TEST_F(Peers, AMove) {
  move(m);
  EXPECT_EQ(trace, (std::vector<std::string>{"m: SUSPEND", "p: SUSPENDED", "m: SWITCH",
                                             "p: SWITCHED", "m: READY"}));
  EXPECT_NE(behind(m.qp)->qpn(), m.qp->qpn());
  EXPECT_NE(behind(p.qp)->qpn(), p.qp->qpn()) << "the peer has a QP that was never connected";
  expect_traffic(100);
  move(m);
  expect_traffic(200);
}

TEST_F(Peers, TheOtherOneMovesAfterwards) {
  move(m);
  trace.clear();
  move(p);
  EXPECT_EQ(trace, (std::vector<std::string>{"p: SUSPEND", "m: SUSPENDED", "p: SWITCH",
                                             "m: SWITCHED", "p: READY"}));
  expect_traffic(100);
  move(m);
  expect_traffic(200);
}

TEST_F(Peers, BothMoveAtOnce) {
  m.context->suspend_peers();
  p.context->suspend_peers();
  carry();
  for (Side* side : {&m, &p}) {
    ASSERT_TRUE(side->context->peers_are_suspended());
    side->stop();
  }
  for (Side* side : {&m, &p}) side->park();
  for (Side* side : {&m, &p}) side->unpark();
  trace.clear();
  m.context->resume(false);
  carry();
  EXPECT_EQ(trace, std::vector<std::string>{"m: SWITCH"}) << "the other one is not there yet";
  p.context->resume(false);
  carry();
  expect_traffic(100);
}

TEST_F(Peers, KeysArePushedWithTheSwitch) {
  move(m);
  m.memory[5] = 55;
  ASSERT_EQ(Send(IBV_WR_RDMA_READ, 1, &p.memory[5], 8, p.mr)
                .remote(&m.memory[5], m.mr->rkey())
                .post(p.qp),
            0);
  p.completions(1);
  EXPECT_EQ(p.memory[5], 55u);
  p.memory[6] = 66;
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 2, &p.memory[6], 8, p.mr)
                .remote(&m.memory[6], m.mr->rkey())
                .post(p.qp),
            0);
  p.completions(1);
  EXPECT_EQ(m.memory[6], 66u);
  ASSERT_EQ(Send(IBV_WR_ATOMIC_FETCH_AND_ADD, 3, &p.memory[7], 8, p.mr)
                .atomic(&m.memory[6], m.mr->rkey(), 4)
                .post(p.qp),
            0);
  p.completions(1);
  EXPECT_EQ(m.memory[6], 70u);
  // The key of the peer, which has not moved, is as it was.
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 4, &m.memory[6], 8, m.mr)
                .remote(&p.memory[8], p.mr->rkey())
                .post(m.qp),
            0);
  m.completions(1);
  EXPECT_EQ(p.memory[8], 70u);
}

TEST_F(Peers, RequestsOfBothWaitAndGoOutInOrder) {
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(m.receive(id, id), 0);
    ASSERT_EQ(p.receive(id, id), 0);
  }
  ASSERT_EQ(m.send(10, 110), 0);
  ASSERT_EQ(p.send(10, 210), 0);
  suspend(m);
  ASSERT_EQ(p.send(11, 211), 0) << "held";
  ASSERT_EQ(m.send(11, 111), 0) << "goes out: the stop is still to come";
  m.stop();
  ASSERT_EQ(m.send(12, 112), 0) << "held";
  m.park();
  ASSERT_EQ(p.send(12, 212), 0);
  m.unpark();
  m.context->resume(false);
  carry();
  EXPECT_EQ(m.completions(6).size(), 6u);
  EXPECT_EQ(p.completions(6).size(), 6u);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(p.memory[i], 109 + i);
    EXPECT_EQ(m.memory[i], 209 + i);
  }
  EXPECT_TRUE(m.nothing_more());
  EXPECT_TRUE(p.nothing_more());
}

TEST_F(Peers, ReceivesOfThePeerStayInOrder) {
  for (std::uint64_t id = 1; id <= 4; ++id) ASSERT_EQ(p.receive(id, id), 0);
  ASSERT_EQ(m.send(10, 1), 0);
  m.completions(1);
  suspend(m);
  ASSERT_EQ(p.receive(5, 5), 0);
  m.stop();
  m.park();
  ASSERT_EQ(p.receive(6, 6), 0);
  m.unpark();
  m.context->resume(false);
  carry();
  for (std::uint64_t i = 2; i <= 6; ++i) ASSERT_EQ(m.send(10, i), 0);
  m.completions(5);
  EXPECT_EQ(p.completions(6), (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6}));
  for (std::uint64_t i = 1; i <= 6; ++i) EXPECT_EQ(p.memory[i], i);
}

TEST_F(Peers, AMoveThatIsGivenUpBeforeTheDeviceWasLeft) {
  use();
  suspend(m);
  end_use();
  ASSERT_EQ(p.receive(1, 1), 0);
  ASSERT_EQ(m.receive(1, 1), 0);
  ASSERT_EQ(p.send(2, 5), 0);
  m.stop();
  trace.clear();
  m.context->resume(true);
  carry();
  EXPECT_EQ(trace, std::vector<std::string>{"m: GO_ON"});
  p.completions(1);
  m.completions(1);
  EXPECT_EQ(m.memory[1], 5u);
  EXPECT_EQ(behind(m.qp)->qpn(), m.qp->qpn());
  ASSERT_EQ(m.send(3, 6), 0);
  p.completions(1);
  EXPECT_EQ(p.memory[1], 6u);
  m.completions(1);
  move(m);
  expect_traffic(100);
}

// Nobody may be left suspended by a move that was given up before all peers had answered.
TEST_F(Peers, AMoveThatIsGivenUpBeforeThePeerIsSuspended) {
  ASSERT_EQ(p.send(1, 5), 0) << "nobody receives it";
  m.context->suspend_peers();
  std::vector<device::Letter> letters;
  m.context->take_letters(&letters);
  ASSERT_EQ(letters.size(), 1u);
  ASSERT_EQ(p.context->deliver(letters[0]), 0);
  EXPECT_TRUE(p.context->progress()) << "it waits";
  EXPECT_FALSE(m.context->peers_are_suspended());
  std::uint32_t unacked = 0;
  EXPECT_EQ(m.context->quiesce(std::chrono::seconds(1), &unacked), EBUSY);
  ASSERT_EQ(p.send(2, 6), 0);
  EXPECT_TRUE(carry_once(m, p, "m: "));
  EXPECT_EQ(trace, std::vector<std::string>{"m: GO_ON"});
  ASSERT_EQ(m.receive(3, 1), 0);
  ASSERT_EQ(m.receive(4, 2), 0);
  carry();
  p.completions(2);
  m.completions(2);
  EXPECT_EQ(m.memory[1], 5u);
  EXPECT_EQ(m.memory[2], 6u);
  EXPECT_TRUE(p.nothing_more());
}

// The answer to an attempt that was given up is none to the next one.
TEST_F(Peers, ALateAnswer) {
  m.context->suspend_peers();
  ASSERT_TRUE(carry_once(m, p, "m: "));
  while (p.context->progress()) continue;
  std::vector<device::Letter> late;
  p.context->take_letters(&late);
  ASSERT_EQ(late.size(), 1u);
  m.context->resume(true);
  m.context->suspend_peers();
  EXPECT_EQ(m.context->deliver(late[0]), 0);
  EXPECT_FALSE(m.context->peers_are_suspended());
  carry();
  EXPECT_TRUE(m.context->peers_are_suspended());
  m.context->resume(true);
  carry();
  expect_traffic(100);
}

TEST_F(Peers, OneMovesAndTheOtherGivesUp) {
  m.context->suspend_peers();
  p.context->suspend_peers();
  carry();
  m.stop();
  p.stop();
  m.park();
  m.unpark();
  m.context->resume(false);
  carry();
  p.context->resume(true);
  carry();
  expect_traffic(100);
}

TEST_F(Peers, AMoveWaitsForTheEndOfThePeersMove) {
  suspend(m);
  m.stop();
  m.park();
  m.unpark();
  m.context->resume(false);
  while (m.context->progress()) continue;  // its QP is made
  std::uint32_t unacked = 0;
  EXPECT_EQ(m.context->quiesce(std::chrono::seconds(1), &unacked), EBUSY);
  carry();
  expect_traffic(100);
}

TEST_F(Peers, LettersOfOthersAreRefused) {
  m.context->suspend_peers();
  std::vector<device::Letter> letters;
  m.context->take_letters(&letters);
  ASSERT_EQ(letters.size(), 1u);
  device::Letter other = letters[0];
  other.from.qpn ^= 1;
  EXPECT_EQ(p.context->deliver(other), ENOENT);
  other = letters[0];
  other.from.gid.bytes[0] ^= std::byte{1};
  EXPECT_EQ(p.context->deliver(other), ENOENT);
  other = letters[0];
  other.to.qpn ^= 1;
  EXPECT_EQ(p.context->deliver(other), ENOENT);
  other = letters[0];
  other.bytes.push_back({});
  EXPECT_EQ(p.context->deliver(other), EINVAL);
  // Out of turn: nothing comes of them, but that who waits hears once more that he need not.
  other = letters[0];
  const auto answers = [&](const LetterBody& body) {
    other.bytes = encode(body);
    EXPECT_EQ(p.context->deliver(other), 0);
    std::vector<device::Letter> written;
    p.context->take_letters(&written);
    std::vector<std::string> names;
    for (const device::Letter& each : written) names.emplace_back(name_of(each));
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(answers({LetterKind::kReady, 1, {}}), Names());
  EXPECT_EQ(answers({LetterKind::kGoOn, 1, {}}), Names());
  EXPECT_EQ(answers({LetterKind::kSuspended, 1, {}}), Names{"GO_ON"});
  LetterBody body{LetterKind::kSwitch, 0, {}};
  body.introduction.qpn = 1;
  EXPECT_EQ(answers(body), Names());
  body.kind = LetterKind::kSwitched;
  EXPECT_EQ(answers(body), Names{"READY"});
  m.context->resume(true);
  carry();
  expect_traffic(100);
}

// The ferryd that carried SWITCH, SWITCHED, or READY has ended.
TEST_F(Peers, LettersThatAreLostAreWrittenAgain) {
  for (Side* loser : {&m, &p, &m}) {
    Side& other = loser == &m ? p : m;
    suspend(m);
    m.stop();
    m.park();
    m.unpark();
    m.context->resume(false);
    while (m.context->progress()) continue;  // its QP is made
    if (loser == &p) carry_once(m, p, "m: ");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (p.context->progress()) ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::vector<device::Letter> lost;
    loser->context->take_letters(&lost);
    EXPECT_EQ(lost.size(), 1u);
    carry();
    EXPECT_TRUE(loser->context->awaits_letters());
    loser->context->repeat_letters();
    carry();
    EXPECT_FALSE(loser->context->awaits_letters() || other.context->awaits_letters());
    expect_traffic(100);
  }
  suspend(m);
  m.stop();
  m.park();
  m.unpark();
  m.context->resume(false);
  while (m.context->progress()) continue;
  carry_once(m, p, "m: ");
  while (p.context->progress()) continue;
  carry_once(p, m, "p: ");
  std::vector<device::Letter> ready;
  m.context->take_letters(&ready);
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_TRUE(p.context->awaits_letters());
  p.context->repeat_letters();
  carry();
  expect_traffic(200);
}

// Its peer waits, and asks again when it hears of another ferryd.
TEST_F(Peers, TheEndOfAMoveThatWasGivenUpIsLost) {
  use();
  suspend(m);
  end_use();
  m.stop();
  m.context->resume(true);
  std::vector<device::Letter> lost;
  m.context->take_letters(&lost);
  ASSERT_EQ(lost.size(), 1u);
  ASSERT_EQ(p.send(1, 5), 0);
  ASSERT_EQ(m.receive(1, 1), 0);
  p.context->repeat_letters();
  trace.clear();
  carry();
  EXPECT_EQ(trace, (std::vector<std::string>{"p: SUSPENDED", "m: GO_ON"}));
  p.completions(1);
  m.completions(1);
  EXPECT_EQ(m.memory[1], 5u);
}

TEST_F(Peers, AQpThatEndsInTheMidstIsForgotten) {
  use();
  suspend(m);
  ASSERT_EQ(p.context->destroy(p.qp), 0);
  EXPECT_FALSE(p.context->progress());
  std::vector<device::Letter> letters;
  m.stop();
  m.context->resume(true);
  m.context->take_letters(&letters);
  ASSERT_EQ(letters.size(), 1u);
  EXPECT_EQ(p.context->deliver(letters[0]), ENOENT);
  ASSERT_EQ(m.context->destroy(m.qp), 0);
}

}  // namespace
}  // namespace ferry::virt::testing
