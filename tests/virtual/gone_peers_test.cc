#include <vector>

#include "two_connections.h"

// Peers that end in the midst of a move or of an introduction, of which nobody tells the other end. Letters to them
// come back from ferryd.
namespace ferry::virt::testing {
namespace {

constexpr std::uint8_t kSoon =
    10;  // ibv_qp_attr::timeout: the device gives a peer up after some 10 ms

struct GonePeers : TwoPrograms {
  void SetUp() override {
    m.start(kFirst);
    p.start(kThird);
    Program::init(m.qp);
    Program::init(p.qp);
    connect(m, p);
    connect(p, m);
    m.context->prepare();
    p.context->prepare();
  }
  static void connect(Side& side, Side& peer) {
    ibv_qp_attr attributes = r::attributes(IBV_QPS_RTR, peer.qp->qpn(), peer.gid());
    ASSERT_EQ(side.qp->modify(attributes, r::kRtrMask), 0);
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = kSoon;
    ASSERT_EQ(side.qp->modify(attributes, r::kRtsMask), 0);
  }
  void stop_and_leave(Side& side, std::uint32_t address) {
    side.stop();
    side.park();
    side.device->address = address;
  }
  static void enter(Side& side) {
    side.unpark();
    side.context->resume(false);
  }
  // What the side has written comes back. Gives how many letters that were.
  static std::size_t come_back(Side& side) {
    std::vector<device::Letter> letters(side.letters.begin(), side.letters.end());
    side.letters.clear();
    side.context->take_letters(&letters);
    for (const device::Letter& letter : letters)
      EXPECT_EQ(side.context->deliver({letter.to, letter.from, {}}), 0);
    return letters.size();
  }
  // The peer of this side does not answer.
  static void find_nobody(Side& side) {
    EXPECT_TRUE(side.context->awaits_letters());
    EXPECT_GE(come_back(side), 1u);
    EXPECT_TRUE(side.context->awaits_letters()) << "the peer may just stand still";
    side.context->repeat_letters();
    EXPECT_EQ(come_back(side), 1u);
    EXPECT_FALSE(side.context->awaits_letters());
    EXPECT_TRUE(r::eventually([&] { return !side.context->progress(); }));
  }
  static ibv_wc_status status(Side& side, std::uint64_t id) {
    const ibv_wc completion = wait_completion(side.cq);
    EXPECT_EQ(completion.wr_id, id);
    return completion.status;
  }
  // The QP that was to be connected anew, to which the program has posted 1 and 2.
  void expect_failed(Side& side) {
    EXPECT_EQ(side.qp->state(), IBV_QPS_ERR);
    std::vector<std::uint64_t> ids;
    for (int i = 0; i < 2; ++i) {
      const ibv_wc completion = wait_completion(side.cq);
      EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
      ids.push_back(completion.wr_id);
    }
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(ids, (std::vector<std::uint64_t>{1, 2}));
    EXPECT_EQ(side.send(3, 0), 0);
    EXPECT_EQ(status(side, 3), IBV_WC_WR_FLUSH_ERR);
  }
  // A program whose peer is gone can move, and connect its QP anew.
  void expect_move(Side& side, std::uint32_t address) {
    side.context->suspend_peers();
    EXPECT_TRUE(r::eventually([&] {
      side.context->progress();
      return side.context->peers_are_suspended();
    }));
    stop_and_leave(side, address);
    enter(side);
    EXPECT_FALSE(side.context->progress());
    EXPECT_EQ(side.qp->state(), IBV_QPS_ERR);
  }
};

TEST_F(GonePeers, DestroyTheirQpsWhileTheOtherEndMoves) {
  use();
  suspend(m);
  end_use();
  stop_and_leave(m, kSecond);
  ASSERT_EQ(m.receive(1, 1), 0);
  ASSERT_EQ(m.send(2, 5), 0);
  ASSERT_EQ(p.context->destroy(p.qp), 0);
  enter(m);
  find_nobody(m);
  expect_failed(m);
  expect_move(m, kFirst);
}

TEST_F(GonePeers, ResetTheirQpsWhileTheOtherEndMoves) {
  use();
  suspend(m);
  end_use();
  stop_and_leave(m, kSecond);
  ASSERT_EQ(p.qp->modify(r::attributes(IBV_QPS_RESET, 0, {}), IBV_QP_STATE), 0);
  enter(m);
  ASSERT_EQ(m.receive(1, 1), 0);
  ASSERT_EQ(m.send(2, 5), 0);
  find_nobody(m);
  expect_failed(m);
  // Both begin anew.
  ASSERT_EQ(m.qp->modify(r::attributes(IBV_QPS_RESET, 0, {}), IBV_QP_STATE), 0);
  for (Side* side : {&m, &p}) Program::init(side->qp);
  connect(m, p);
  connect(p, m);
  carry();
  expect_traffic(10);
}

// The program that moves ends with its host: its peer goes on, and its device finds nobody, as without Ferry.
TEST_F(GonePeers, EndWhileTheyMove) {
  use();
  suspend(m);
  end_use();
  stop_and_leave(m, kSecond);
  ASSERT_EQ(p.send(2, 5), 0);
  EXPECT_TRUE(p.nothing_more());
  m.context.reset();
  p.context->repeat_letters();  // SUSPENDED has come before
  find_nobody(p);
  EXPECT_EQ(status(p, 2), IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(p.qp->state(), IBV_QPS_ERR);
  EXPECT_FALSE(p.context->awaits_letters());
  expect_move(p, kFourth);
}

TEST_F(GonePeers, EndWhenTheyHaveMoved) {
  use();
  suspend(m);
  end_use();
  stop_and_leave(m, kSecond);
  ASSERT_EQ(p.send(2, 5), 0);
  enter(m);
  carry_once(m, p, "m: ");
  ASSERT_EQ(trace.back(), "m: SWITCH");
  EXPECT_TRUE(r::eventually([&] {
    p.context->progress();
    std::vector<device::Letter> written;
    p.context->take_letters(&written);
    p.letters.insert(p.letters.end(), written.begin(), written.end());
    return !p.letters.empty();
  }));
  m.context.reset();
  find_nobody(p);  // SWITCHED
  EXPECT_EQ(status(p, 2), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(GonePeers, EndWhenBothHaveMoved) {
  use();
  suspend(m);
  suspend(p);
  end_use();
  stop_and_leave(m, kSecond);
  stop_and_leave(p, kFourth);
  ASSERT_EQ(p.send(2, 5), 0);
  enter(m);
  enter(p);
  carry_once(m, p, "m: ");
  ASSERT_EQ(trace.back(), "m: SWITCH");
  m.context.reset();
  std::vector<device::Letter> lost;  // p's SWITCH and SWITCHED
  p.context->take_letters(&lost);
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_TRUE(p.context->awaits_letters());
  p.context->repeat_letters();
  find_nobody(p);
  EXPECT_EQ(status(p, 2), IBV_WC_RETRY_EXC_ERR);
}

// Both have moved, and SWITCHED of one of them was lost with a ferryd.
TEST_F(GonePeers, AreNotThoseThatAnswerTheSecondTime) {
  use();
  suspend(m);
  suspend(p);
  end_use();
  stop_and_leave(m, kSecond);
  stop_and_leave(p, kFourth);
  enter(m);
  enter(p);
  carry_once(m, p, "m: ");
  carry_once(p, m, "p: ");  // SWITCH and SWITCHED
  std::vector<device::Letter> lost;
  m.context->take_letters(&lost);
  ASSERT_FALSE(lost.empty());
  carry();
  EXPECT_TRUE(p.context->awaits_letters());
  EXPECT_EQ(come_back(p), 0u);
  p.context->repeat_letters();
  trace.clear();
  carry();
  EXPECT_EQ(trace, (std::vector<std::string>{"p: SWITCHED", "m: READY"}));
  EXPECT_FALSE(p.context->awaits_letters() || m.context->awaits_letters());
  expect_traffic(10);
}

// A letter comes back from a peer that stands still for long; the next one reaches it.
TEST_F(GonePeers, AreNotThoseThatStandStill) {
  use();
  suspend(m);
  suspend(p);
  end_use();
  stop_and_leave(m, kSecond);
  stop_and_leave(p, kFourth);
  ASSERT_EQ(m.receive(1, 1), 0);
  ASSERT_EQ(m.send(2, 5), 0);
  enter(m);
  EXPECT_EQ(come_back(m), 1u);
  enter(p);
  m.context->repeat_letters();
  carry();
  EXPECT_EQ(p.receive(3, 1), 0);
  EXPECT_EQ(m.completions(1), std::vector<std::uint64_t>{2});
  EXPECT_EQ(p.completions(1), std::vector<std::uint64_t>{3});
  EXPECT_EQ(p.send(4, 6), 0);
  EXPECT_EQ(m.completions(1), std::vector<std::uint64_t>{1});
  EXPECT_EQ(p.completions(1), std::vector<std::uint64_t>{4});
  expect_traffic(10);
}

// A peer that comes later all the same is refused, and hears so in the same way.
TEST_F(GonePeers, ComeTooLate) {
  use();
  suspend(m);
  end_use();
  stop_and_leave(m, kSecond);
  p.context->repeat_letters();  // SUSPENDED has come before
  find_nobody(p);
  ASSERT_EQ(m.receive(1, 1), 0);
  ASSERT_EQ(m.send(2, 5), 0);
  enter(m);
  carry_once(m, p, "m: ");
  EXPECT_EQ(m.letters.size(), 1u) << "p takes no SWITCH any more";
  find_nobody(m);
  expect_failed(m);
}

// The program that was not heard for so long is where it was.
TEST_F(GonePeers, GiveTheirMoveUp) {
  use();
  suspend(m);
  end_use();
  m.stop();
  p.context->repeat_letters();  // SUSPENDED has come before
  find_nobody(p);
  m.context->resume(true);
  carry();
  expect_traffic(10);
  move(p, kFourth);
  expect_traffic(20);
  use();
  move(m, kSecond);
  end_use();
  expect_traffic(30);
}

// M has moved before its program connects the QP, and P resets its QP between SUSPENDED and SWITCHED.
struct GoneInIntroductions : GonePeers {
  void SetUp() override {
    m.start(kFirst);
    p.start(kThird);
    for (Side* side : {&m, &p}) {
      Program::init(side->qp);
      side->context->prepare();
    }
  }
};

TEST_F(GoneInIntroductions, ResetTheirQps) {
  move(m, kSecond);
  p.context->moved({{port::Address::from_ipv4(kFirst)}, {}});
  connect(m, p);
  connect(p, m);
  ASSERT_EQ(m.receive(1, 1), 0);
  ASSERT_EQ(m.send(2, 5), 0);
  while (trace.empty() || trace.back() != "p: SUSPENDED") {
    const std::size_t before = trace.size();
    carry_once(m, p, "m: ");
    carry_once(p, m, "p: ");
    ASSERT_GT(trace.size(), before);
  }
  ASSERT_EQ(p.qp->modify(r::attributes(IBV_QPS_RESET, 0, {}), IBV_QP_STATE), 0);
  find_nobody(m);
  expect_failed(m);
}

}  // namespace
}  // namespace ferry::virt::testing
