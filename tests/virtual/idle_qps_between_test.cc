#include <condition_variable>
#include <mutex>
#include <thread>

#include "passing_context.h"
#include "two_connections.h"

// What happens while idle QPs leave the device before a stop, and when there is no stop then: the move is given up, the
// peer moves or ends, or the program has done with the QP.
namespace ferry::virt::testing {
namespace {

// A call of the program that takes as long as the test wants.
class Latch {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    is_there_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_; });
  }
  void await_caller() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_there_; });
  }
  void open() {
    std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_there_ = false, is_open_ = false;
};

class SlowContext final : public PassingContext {
 public:
  SlowContext(std::unique_ptr<device::Context> inner, Latch& latch)
      : PassingContext(std::move(inner)), latch_(latch) {}
  int query_pkey(std::uint8_t port, int index, std::uint16_t* out) override {
    latch_.wait();
    return inner_->query_pkey(port, index, out);
  }

 private:
  Latch& latch_;
};

struct IdleQpsBetween : TwoConnections {
  void finish_move(Side& side, std::uint32_t address) {
    side.stop();
    side.park();
    side.device->address = address;
    side.unpark();
    side.context->resume(false);
    carry();
  }
  // Each step is one of the things that the two agents and ferryd do in turn.
  void go(int steps) {
    for (int i = 0; i < steps; ++i) {
      switch (i % 4) {
        case 0: m.context->progress(); break;
        case 1: carry_once(m, p, "m: "); break;
        case 2: p.context->progress(); break;
        default: carry_once(p, m, "p: ");
      }
    }
  }
  // Both ends of both connections have one receive each, from before. All get a message.
  void post_receives() {
    for (const auto& [mine, its] : {std::pair{m.qp, p.qp}, std::pair{m_other, p_other}}) {
      ASSERT_EQ(receive(m, mine, 1, 1), 0);
      ASSERT_EQ(receive(p, its, 1, 1), 0);
    }
  }
  void expect_received() {
    for (const auto& [mine, its] : {std::pair{m.qp, p.qp}, std::pair{m_other, p_other}}) {
      ASSERT_EQ(receive(m, mine, 3, 2), 0);
      ASSERT_EQ(receive(p, its, 3, 2), 0);
      for (const std::uint64_t value : {10, 20}) {
        ASSERT_EQ(send(mine, 2, value), 0);
        ASSERT_EQ(send(its, 2, value + 1), 0);
      }
      for (Side* side : {&m, &p}) {
        std::vector<std::uint64_t> ids;
        for (int i = 0; i < 4; ++i) {
          const ibv_wc completion = wait_completion(side->cq);
          EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
          EXPECT_EQ(completion.qp_num, (side == &m ? mine : its)->qpn());
          if (completion.wr_id != 2) ids.push_back(completion.wr_id);
        }
        EXPECT_EQ(ids, (std::vector<std::uint64_t>{1, 3}));
        EXPECT_EQ(side->memory[1], side == &p ? 10u : 11u);
        EXPECT_EQ(side->memory[2], side == &p ? 20u : 21u);
      }
    }
    EXPECT_TRUE(m.nothing_more());
    EXPECT_TRUE(p.nothing_more());
  }
};

constexpr int kSteps = 24;  // as a rule more than the QPs need to leave

TEST_F(IdleQpsBetween, AMoveThatIsGivenUpMakesThemAgain) {
  const std::uint32_t qpn = m.qp->qpn();
  suspend(m);
  EXPECT_FALSE(is_made(m.qp));
  ASSERT_EQ(receive(p, p.qp, 1, 1), 0);
  ASSERT_EQ(send(m.qp, 2, 5), 0) << "held";
  trace.clear();
  m.context->release_peers();
  carry();
  EXPECT_TRUE(is_made(m.qp));
  EXPECT_TRUE(is_made(m_other));
  EXPECT_EQ(m.qp->qpn(), qpn);
  EXPECT_EQ(count("m: SWITCH"), 2u);
  EXPECT_EQ(count("m: GO_ON"), 0u);
  m.completions(1);
  p.completions(1);
  EXPECT_EQ(p.memory[1], 5u);
  expect_traffic_of_both();
  suspend(m);
  EXPECT_FALSE(is_made(m.qp));
  finish_move(m, kSecond);
  expect_traffic_of_both();
}

TEST_F(IdleQpsBetween, AMoveIsGivenUpAtAnyStep) {
  for (int steps = 0; steps <= kSteps; ++steps) {
    SCOPED_TRACE(steps);
    post_receives();
    m.context->suspend_peers();
    go(steps);
    m.context->release_peers();
    carry();
    expect_received();
    if (HasFailure()) return;
  }
  EXPECT_GT(count("m: SWITCH"), 0u);
  EXPECT_GT(count("m: GO_ON"), 0u);
}

// The stop comes too early, or is given up.
TEST_F(IdleQpsBetween, AStopIsGivenUpAtAnyStep) {
  for (int steps = 0; steps <= kSteps; ++steps) {
    SCOPED_TRACE(steps);
    post_receives();
    m.context->suspend_peers();
    go(steps);
    std::uint32_t unacked = 0;
    const int error = m.context->quiesce(std::chrono::seconds(10), &unacked);
    EXPECT_TRUE(error == EBUSY || (error == 0 && steps > 0));
    if (error == 0) m.context->resume(true);
    carry();
    expect_received();
    if (HasFailure()) return;
  }
}

TEST_F(IdleQpsBetween, ADeviceThatWasLeftIsEnteredAgain) {
  post_receives();
  suspend(m);
  finish_move(m, kFirst);
  expect_received();
}

TEST_F(IdleQpsBetween, BothEndsMoveFromAnyStepOn) {
  for (int steps = 0; steps <= kSteps; ++steps) {
    SCOPED_TRACE(steps);
    post_receives();
    m.context->suspend_peers();
    go(steps);
    p.context->suspend_peers();
    carry();
    for (Side* side : {&m, &p}) ASSERT_TRUE(side->context->peers_are_suspended());
    EXPECT_FALSE(is_made(m.qp));
    for (Side* side : {&m, &p}) side->stop();
    for (Side* side : {&m, &p}) side->park();
    for (Side* side : {&m, &p}) side->unpark();
    (steps % 2 == 0 ? m : p).context->resume(false);
    carry();
    (steps % 2 == 0 ? p : m).context->resume(false);
    carry();
    expect_received();
    if (HasFailure()) return;
  }
}

TEST_F(IdleQpsBetween, BothEndsLeaveWhenBothMoveAtOnce) {
  m.context->suspend_peers();
  p.context->suspend_peers();
  carry();
  for (device::Qp* qp : {m.qp, m_other, p.qp, p_other}) EXPECT_FALSE(is_made(qp));
}

TEST_F(IdleQpsBetween, BothEndsGiveUpFromAnyStepOn) {
  for (int steps = 0; steps <= kSteps; ++steps) {
    SCOPED_TRACE(steps);
    post_receives();
    m.context->suspend_peers();
    p.context->suspend_peers();
    go(steps);
    m.context->release_peers();
    go(steps % 5);
    p.context->release_peers();
    carry();
    expect_received();
    if (HasFailure()) return;
  }
}

TEST_F(IdleQpsBetween, OneEndMovesAndTheOtherGivesUpAtAnyStep) {
  for (int steps = 0; steps <= kSteps; ++steps) {
    SCOPED_TRACE(steps);
    post_receives();
    Side& first = steps % 2 == 0 ? m : p;
    Side& other = &first == &m ? p : m;
    m.context->suspend_peers();
    p.context->suspend_peers();
    go(steps);
    other.context->release_peers();
    carry();
    // What the other end makes anew is in the midst of a talk, which has ended by now.
    ASSERT_TRUE(r::eventually([&] {
      carry();
      return first.context->peers_are_suspended();
    }));
    finish_move(first, &first == &m ? kSecond : kFourth);
    expect_received();
    if (HasFailure()) return;
  }
}

// M waits, with its QPs away, until P has moved.
TEST_F(IdleQpsBetween, ThePeerMovesMeanwhile) {
  for (const bool gives_up : {true, false}) {
    post_receives();
    suspend(m);
    EXPECT_FALSE(is_made(m.qp));
    suspend(p);
    finish_move(p, kFourth);
    EXPECT_FALSE(is_made(m.qp));
    if (gives_up) {
      m.context->release_peers();
      carry();
    } else {
      finish_move(m, kSecond);
    }
    expect_received();
  }
}

TEST_F(IdleQpsBetween, ThePeerEndsMeanwhile) {
  for (const bool gives_up : {true, false}) {
    device::Qp *const mine = m.create_qp(), *const its = p.create_qp();
    connect(mine, its);
    carry();
    suspend(m);
    EXPECT_FALSE(is_made(mine));
    ASSERT_EQ(p.context->destroy(its), 0);
    if (gives_up) {
      m.context->release_peers();
      carry();
    } else {
      finish_move(m, kSecond);
    }
    EXPECT_TRUE(is_made(mine));
    const std::uint32_t qpn = mine->qpn();
    ASSERT_EQ(m.context->destroy(mine), 0);
    carry();
    // Nobody takes its letters. Those of the others wait behind them.
    std::erase_if(m.letters, [&](const device::Letter& letter) { return letter.from.qpn == qpn; });
    carry();
    expect_traffic_of_both();
    if (HasFailure()) return;
  }
}

TEST_F(IdleQpsBetween, OneThatIsDestroyedAtAnyStepLetsItsPeerGo) {
  for (int steps = 0; steps <= kSteps; ++steps) {
    SCOPED_TRACE(steps);
    const auto [mine, its] = impatient();
    carry();
    m.context->suspend_peers();
    go(steps);
    ASSERT_EQ(m.context->destroy(mine), 0);
    m.context->release_peers();
    carry();
    ASSERT_EQ(send(its, 2, 5), 0);
    carry();
    EXPECT_EQ(wait_completion(p.cq).status, IBV_WC_RETRY_EXC_ERR);
    ASSERT_EQ(p.context->destroy(its), 0);
    expect_traffic_of_both();
    if (HasFailure()) return;
  }
}

TEST_F(IdleQpsBetween, OneThatIsResetAtAnyStepLetsItsPeerGo) {
  for (int steps = 0; steps <= kSteps; ++steps) {
    SCOPED_TRACE(steps);
    const auto [mine, its] = impatient();
    carry();
    m.context->suspend_peers();
    go(steps);
    ASSERT_EQ(mine->modify(r::attributes(IBV_QPS_RESET, 0, {}), IBV_QP_STATE), 0);
    EXPECT_EQ(mine->state(), IBV_QPS_RESET);
    m.context->release_peers();
    carry();
    ASSERT_EQ(send(its, 2, 5), 0);
    carry();
    EXPECT_EQ(wait_completion(p.cq).status, IBV_WC_RETRY_EXC_ERR);
    ASSERT_EQ(m.context->destroy(mine), 0);
    ASSERT_EQ(p.context->destroy(its), 0);
    expect_traffic_of_both();
    if (HasFailure()) return;
  }
}

// A QP leaves while no call of the program is under way. The receives of m's QPs have come back, and a call lasts.
struct HeldUp : IdleQpsBetween {
  Latch latch;
  std::thread program;

  void SetUp() override {
    m.wrap = [&](std::unique_ptr<device::Context> context) {
      return std::make_unique<SlowContext>(std::move(context), latch);
    };
    IdleQpsBetween::SetUp();
    post_receives();
    program = std::thread([&] {
      std::uint16_t pkey = 0;
      EXPECT_EQ(m.context->query_pkey(1, 0, &pkey), 0);
    });
    latch.await_caller();
    m.context->suspend_peers();
    go(100);
    EXPECT_TRUE(is_made(m.qp));
    EXPECT_TRUE(m.context->progress());
    EXPECT_FALSE(m.context->peers_are_suspended());
    EXPECT_EQ(m.qp->state(), IBV_QPS_RTS);
  }
  void TearDown() override { end_call(); }
  void end_call() {
    latch.open();
    if (program.joinable()) program.join();
  }
};

TEST_F(HeldUp, TheyLeaveALittleLater) {
  end_call();
  carry();
  EXPECT_FALSE(is_made(m.qp));
  EXPECT_TRUE(m.context->peers_are_suspended());
  finish_move(m, kSecond);
  expect_received();
}

TEST_F(HeldUp, AMoveThatIsGivenUpMakesThemAgain) {
  m.context->release_peers();
  go(kSteps);
  EXPECT_EQ(count("m: GO_ON"), 0u);
  end_call();
  carry();
  expect_received();
}

TEST_F(HeldUp, ThePeerMovesMeanwhile) {
  p.context->suspend_peers();
  go(kSteps);
  ASSERT_TRUE(p.context->peers_are_suspended());
  p.stop();
  p.park();
  p.device->address = kFourth;
  p.unpark();
  p.context->resume(false);
  go(kSteps);
  end_call();
  carry();
  EXPECT_FALSE(is_made(m.qp));
  finish_move(m, kSecond);
  expect_received();
}

TEST_F(HeldUp, ThePeerGivesUpMeanwhile) {
  p.context->suspend_peers();
  go(kSteps);
  p.context->release_peers();
  go(kSteps);
  m.context->repeat_letters();
  go(kSteps);
  EXPECT_EQ(count("m: SEEK"), 0u);
  m.context->release_peers();
  end_call();
  carry();
  expect_received();
}

TEST_F(HeldUp, AQpThatIsDestroyedIsForgotten) {
  ASSERT_EQ(m.context->destroy(m_other), 0);
  end_call();
  carry();
  ASSERT_EQ(p.context->destroy(p_other), 0);
  EXPECT_TRUE(m.context->peers_are_suspended());
  finish_move(m, kSecond);
  ASSERT_EQ(p.send(2, 5), 0);
  EXPECT_EQ(p.completions(1), std::vector<std::uint64_t>{2});
  EXPECT_EQ(m.completions(1), std::vector<std::uint64_t>{1});
  EXPECT_EQ(m.memory[1], 5u);
}

}  // namespace
}  // namespace ferry::virt::testing
