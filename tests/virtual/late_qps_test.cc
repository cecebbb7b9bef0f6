#include "passing_context.h"
#include "two_connections.h"

// QPs that were not in use when their context was stopped: their objects are made after the resume, while
// the program goes on.
namespace ferry::virt::testing {
namespace {

// A device that refuses to make QPs whose send queues are larger than `largest`.
class FullContext final : public PassingContext {
 public:
  FullContext(std::unique_ptr<device::Context> inner, const std::uint32_t& largest)
      : PassingContext(std::move(inner)), largest_(largest) {}
  int create_qp(device::QpInit* init, device::Qp** out) override {
    return init->cap.max_send_wr > largest_ ? ENOMEM : inner_->create_qp(init, out);
  }

 private:
  const std::uint32_t& largest_;
};

// The parameter: whether the QPs of m leave their device before the stop, as idle QPs do, or in the stop, because they
// were in use a moment before.
struct LateQps : TwoConnections, ::testing::WithParamInterface<bool> {
  std::uint32_t largest = ~0u;  // of the device of m, behind wrap()

  void SetUp() override {
    if (!GetParam()) m.watch = std::chrono::milliseconds(1);
    TwoConnections::SetUp();
  }
  void suspend(Side& side) override {
    side.context->suspend_peers();
    if (&side == &m && !GetParam()) {
      for (device::Qp* qp : {m.qp, m_other}) touch(qp);
    }
    carry();
    ASSERT_TRUE(side.context->peers_are_suspended());
    if (&side == &m) {
      EXPECT_EQ(is_made(m_other), !GetParam());
    }
  }
  // Something goes over the QP, of which nobody gets a completion.
  void touch(device::Qp* qp) {
    if (!is_made(qp)) return;
    ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 0, &m.memory[63], 8, m.mr, 0)
                  .remote(&p.memory[63], p.mr->rkey())
                  .post(qp),
              0);
  }

  // From its next device on.
  void wrap() {
    m.device->wrap = [&](std::unique_ptr<device::Context> context) {
      return std::make_unique<FullContext>(std::move(context), largest);
    };
  }
  // While the QPs of m are late. The letters go at once, and m makes none of its QPs.
  void move_peer() {
    p.context->suspend_peers();
    for (const auto& [from, to] : {std::pair{&p, &m}, std::pair{&m, &p}}) {
      std::vector<device::Letter> letters;
      from->context->take_letters(&letters);
      for (const device::Letter& letter : letters) ASSERT_EQ(to->context->deliver(letter), 0);
    }
    while (p.context->progress()) continue;
    ASSERT_TRUE(p.context->peers_are_suspended());
    p.stop();
    p.park();
    p.device->address = kFourth;
    p.unpark();
    p.context->resume(false);
    std::vector<device::Letter> letters;
    p.context->take_letters(&letters);
    for (const device::Letter& letter : letters) ASSERT_EQ(m.context->deliver(letter), 0);
  }
};

TEST_P(LateQps, AreMadeAfterTheResume) {
  stop();
  resume();
  EXPECT_FALSE(is_made(m.qp));
  EXPECT_FALSE(is_made(m_other));
  carry();
  EXPECT_TRUE(is_made(m.qp));
  EXPECT_TRUE(is_made(m_other));
  EXPECT_EQ(trace, (std::vector<std::string>{"m: SWITCH", "m: SWITCH", "p: SWITCHED", "p: SWITCHED",
                                             "m: READY", "m: READY"}));
  expect_traffic_of_both();
}

// A few at a time: in between, letters of the others are delivered.
TEST_P(LateQps, AreMadeInSteps) {
  std::vector<device::Qp*> more;
  for (int i = 0; i < 10; ++i) {
    more.push_back(m.create_qp());
    connect(more.back(), p.create_qp());
  }
  stop();
  resume();
  EXPECT_TRUE(m.context->progress()) << "not all at once";
  EXPECT_LT(std::count_if(more.begin(), more.end(), is_made), 10);
  carry();
  EXPECT_EQ(std::count_if(more.begin(), more.end(), is_made), 10);
  EXPECT_FALSE(m.context->progress());
}

TEST_P(LateQps, AQpWithRequestsThatAreHeldIsMadeInTheStop) {
  suspend(m);
  m.stop();
  ASSERT_EQ(send(m.qp, 1, 5), 0);
  m.park();
  resume();
  EXPECT_TRUE(is_made(m.qp));
  EXPECT_FALSE(is_made(m_other));
  ASSERT_EQ(receive(p, p.qp, 2, 1), 0);
  carry();
  m.completions(1);
  EXPECT_EQ(p.completions(1), std::vector<std::uint64_t>{2});
}

TEST_P(LateQps, AQpWithRequestsUnderWayIsMadeInTheStop) {
  ASSERT_EQ(receive(p, p.qp, 2, 1), 0);
  ASSERT_EQ(send(m.qp, 1, 5), 0);
  suspend(m);
  m.stop();  // finds the completion
  m.park();
  resume();
  EXPECT_TRUE(is_made(m.qp));
  EXPECT_FALSE(is_made(m_other));
  carry();
  m.completions(1);
  p.completions(1);
}

// Nothing of a WRITE of the peer is seen where it arrives.
TEST_P(LateQps, APeerWithSomethingToDoSaysSo) {
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, &p.memory[5], 8, p.mr)
                .remote(&m.memory[5], m.mr->rkey())
                .post(p.qp),
            0);
  stop();
  resume();
  EXPECT_TRUE(is_made(m.qp));
  EXPECT_FALSE(is_made(m_other));
  carry();
  p.completions(1);
  expect_traffic_of_both();
}

// A library that does not know of this repeats what it was sent.
TEST_P(LateQps, APeerWithAnOlderLibraryDoesNotSay) {
  m.context->suspend_peers();
  while (m.context->progress()) continue;  // the watch
  std::vector<device::Letter> written;
  m.context->take_letters(&written);
  ASSERT_EQ(written.size(), 2u);
  for (device::Letter& letter : written) {
    letter.bytes[0] = std::byte{2};  // SUSPENDED
    std::swap(letter.from, letter.to);
    ASSERT_EQ(m.context->deliver(letter), 0);
  }
  while (m.context->progress()) continue;
  EXPECT_TRUE(m.context->peers_are_suspended());
  m.stop();
  m.park();
  resume();
  EXPECT_FALSE(is_made(m.qp));
  EXPECT_FALSE(is_made(m_other));
}

TEST_P(LateQps, WhoseTurnComesFirstHasSomethingToDo) {
  std::vector<device::Qp*> more;
  for (int i = 0; i < 10; ++i) {
    more.push_back(m.create_qp());
    connect(more.back(), p.create_qp());
  }
  stop();
  resume();
  ASSERT_EQ(send(more[3], 1, 5), 0);
  ASSERT_EQ(send(more[8], 1, 5), 0);
  m.context->progress();
  EXPECT_TRUE(is_made(more[3]));
  EXPECT_TRUE(is_made(more[8]));
}

TEST_P(LateQps, RequestsAndReceivesOfTheMeantimeAreInOrder) {
  stop();
  resume();
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(receive(m, m.qp, id, id), 0);
    ASSERT_EQ(receive(p, p.qp, id, id), 0);
    ASSERT_EQ(send(m.qp, 10 + id, 100 + id), 0);
    ASSERT_EQ(send(p.qp, 10 + id, 200 + id), 0);
  }
  EXPECT_FALSE(is_made(m.qp));
  carry();
  EXPECT_EQ(m.completions(6).size(), 6u);
  EXPECT_EQ(p.completions(6).size(), 6u);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    EXPECT_EQ(p.memory[id], 100 + id);
    EXPECT_EQ(m.memory[id], 200 + id);
  }
}

TEST_P(LateQps, TheProgramSeesNoDifference) {
  stop();
  resume();
  ibv_qp_attr attributes{};
  ASSERT_EQ(m.qp->query(&attributes), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attributes.cur_qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attributes.dest_qp_num, p.qp->qpn());
  EXPECT_EQ(attributes.timeout, 18);
  EXPECT_GE(attributes.cap.max_send_wr, 16u);
  EXPECT_EQ(m.qp->state(), IBV_QPS_RTS);
  std::vector<device::QpStatus> status;
  m.context->status(&status);
  ASSERT_EQ(status.size(), 2u);
  EXPECT_EQ(status[0].state, IBV_QPS_RTS);
  EXPECT_FALSE(is_made(m.qp)) << "nobody needed it";
}

TEST_P(LateQps, AWindowIsBoundALittleLater) {
  stop();
  resume();
  device::Mw* window = nullptr;
  ASSERT_EQ(m.context->alloc_mw(m.pd, IBV_MW_TYPE_1, &window), 0);
  std::uint32_t rkey = 0;
  device::MwBind bind;
  bind.mr = m.mr;
  bind.address = m.mr != nullptr ? reinterpret_cast<std::uintptr_t>(m.memory.data()) : 0;
  const std::uint32_t first = window->rkey();
  EXPECT_EQ(m.qp->bind_mw(window, bind, &rkey), 0) << "held";
  EXPECT_EQ(rkey, ibv_inc_rkey(first));
  EXPECT_EQ(behind(window)->rkey(), first);
  carry();
  EXPECT_EQ(behind(window)->rkey(), rkey);
  EXPECT_EQ(m.qp->bind_mw(window, bind, &rkey), 0);
  EXPECT_EQ(behind(window)->rkey(), rkey);
  EXPECT_EQ(m.context->destroy(window), 0);
}

// The peer goes on, and finds that nobody answers.
TEST_P(LateQps, AQpThatIsResetLetsItsPeerGo) {
  const auto [mine, its] = impatient();
  stop();
  resume();
  ASSERT_EQ(send(its, 2, 5), 0);
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(mine->modify(reset, IBV_QP_STATE), 0);
  EXPECT_TRUE(is_made(mine));
  EXPECT_EQ(mine->state(), IBV_QPS_RESET);
  carry();
  EXPECT_EQ(wait_completion(p.cq).status, IBV_WC_RETRY_EXC_ERR);
  r::to_init(mine);
  EXPECT_EQ(mine->state(), IBV_QPS_INIT);
}

// Its peer has moved meanwhile, and waits for an answer to its SWITCH.
TEST_P(LateQps, AQpThatIsResetAnswersAPeerThatHasMoved) {
  const auto [mine, its] = impatient();
  wrap();
  stop();
  resume();
  ASSERT_EQ(send(its, 2, 5), 0) << "held, so that its end is not late";
  largest = 0;  // else this end would be made before
  move_peer();
  EXPECT_TRUE(is_made(its));
  largest = ~0u;
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(mine->modify(reset, IBV_QP_STATE), 0);
  carry();
  EXPECT_EQ(wait_completion(p.cq).status, IBV_WC_RETRY_EXC_ERR);
}

TEST_P(LateQps, WhatTheyNeedCannotBeDestroyed) {
  stop();
  resume();
  EXPECT_EQ(m.context->destroy(m.cq), EBUSY);
  EXPECT_EQ(m.context->destroy(m.pd), EBUSY);
  carry();
  expect_traffic_of_both();
}

TEST_P(LateQps, AQpThatFailsInTheMeantimeFlushesWhatItHas) {
  stop();
  resume();
  ASSERT_EQ(receive(m, m.qp, 1, 1), 0);
  ASSERT_EQ(send(m.qp, 2, 5), 0);
  ibv_qp_attr fail{};
  fail.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(m.qp->modify(fail, IBV_QP_STATE), 0);
  EXPECT_EQ(m.qp->state(), IBV_QPS_ERR);
  carry();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(wait_completion(m.cq).status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(m.nothing_more());
}

// The peer goes on, and finds that nobody answers.
TEST_P(LateQps, AQpThatIsDestroyedLetsItsPeerGo) {
  const auto [mine, its] = impatient();
  stop();
  resume();
  ASSERT_EQ(send(its, 2, 5), 0);
  ASSERT_EQ(m.context->destroy(mine), 0);
  carry();
  EXPECT_EQ(std::count(trace.begin(), trace.end(), "m: GO_ON"), 1);
  EXPECT_EQ(wait_completion(p.cq).status, IBV_WC_RETRY_EXC_ERR);
}

TEST_P(LateQps, AnotherMoveFindsThemAsTheyAre) {
  stop();
  resume();
  ASSERT_EQ(receive(m, m.qp, 1, 1), 0);
  ASSERT_EQ(receive(p, p.qp, 1, 1), 0);
  m.context->suspend_peers();
  EXPECT_FALSE(m.context->progress()) << "none is made in the time before a stop";
  EXPECT_TRUE(m.context->peers_are_suspended()) << "they still wait";
  m.stop();
  m.park();
  m.device->address = kFourth;
  resume();
  EXPECT_FALSE(is_made(m.qp));
  ASSERT_EQ(send(m.qp, 2, 77), 0);
  m.context->suspend_peers();
  m.stop();
  m.park();
  m.device->address = kSecond;
  resume();
  EXPECT_TRUE(is_made(m.qp)) << "the program has posted meanwhile";
  EXPECT_FALSE(is_made(m_other));
  ASSERT_EQ(send(p.qp, 2, 78), 0);
  carry();
  EXPECT_EQ(m.completions(2).size(), 2u);
  EXPECT_EQ(p.completions(2).size(), 2u);
  EXPECT_EQ(p.memory[1], 77u);
  EXPECT_EQ(m.memory[1], 78u);
  expect_traffic_of_both();
}

// The first move has told the peer nothing yet, and the second one finds nobody who could be told.
TEST_P(LateQps, AQpThatHasFailedBeforeAnotherMoveLetsItsPeerGo) {
  const auto [mine, its] = impatient();
  stop();
  resume();
  ASSERT_EQ(send(its, 2, 5), 0);
  ibv_qp_attr fail{};
  fail.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(mine->modify(fail, IBV_QP_STATE), 0);
  m.context->suspend_peers();
  m.stop();
  m.park();
  resume();
  carry();
  EXPECT_EQ(wait_completion(p.cq).status, IBV_WC_RETRY_EXC_ERR);
}

TEST_P(LateQps, OneThatIsRefusedDoesNotHoldUpTheOthers) {
  device::Qp* const large = m.create_qp({1000, 16, 4, 4, 64});
  device::Qp* const its = p.create_qp();
  connect(large, its);
  wrap();
  stop();
  resume();
  largest = 500;
  ASSERT_EQ(send(large, 2, 77), 0) << "it is the first one";
  EXPECT_TRUE(r::eventually([&] {
    m.context->progress();
    return is_made(m.qp) && is_made(m_other);
  }));
  EXPECT_FALSE(is_made(large));
  largest = ~0u;
  ASSERT_EQ(receive(p, its, 1, 1), 0);
  carry();
  EXPECT_EQ(wait_completion(p.cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(p.memory[1], 77u);
}

TEST_P(LateQps, AStopThatIsGivenUpLeavesThemForLater) {
  stop();
  resume();
  m.context->suspend_peers();
  m.stop();
  m.context->resume(true);
  m.context->release_peers();
  EXPECT_FALSE(is_made(m.qp));
  carry();
  EXPECT_EQ(std::count(trace.begin(), trace.end(), "m: GO_ON"), 0) << "the peers cannot go on yet";
  expect_traffic_of_both();
}

TEST_P(LateQps, AreMadeAlsoAfterAMoveThatWasRolledBack) {
  stop();
  m.device->address = kFirst;
  m.unpark();
  m.context->resume(true);
  EXPECT_FALSE(is_made(m.qp));
  carry();
  expect_traffic_of_both();
}

// They are made first, or the peer would stop when their SWITCH is on its way.
TEST_P(LateQps, AreMadeBeforeThePeerCanMove) {
  stop();
  resume();
  p.context->suspend_peers();
  carry_once(p, m, "p: ");
  EXPECT_TRUE(is_made(m.qp));
  carry_once(m, p, "m: ");
  EXPECT_FALSE(p.context->peers_are_suspended());
  carry();
  ASSERT_TRUE(p.context->peers_are_suspended());
  p.stop();
  p.park();
  p.device->address = kFourth;
  p.unpark();
  p.context->resume(false);
  carry();
  expect_traffic_of_both();
}

// The device refuses to make them before.
TEST_P(LateQps, ThePeerMovesMeanwhile) {
  wrap();
  stop();
  resume();
  largest = 0;
  move_peer();
  EXPECT_FALSE(is_made(m.qp));
  largest = ~0u;
  carry();
  expect_traffic_of_both();
}

TEST_P(LateQps, TheirNumbersAreNotGivenToOthers) {
  stop();
  resume();
  std::vector<std::uint32_t> numbers;
  for (int i = 0; i < 50; ++i) numbers.push_back(m.create_qp()->qpn());
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), m.qp->qpn()), 0);
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), m_other->qpn()), 0);
  carry();
  expect_traffic_of_both();
}

TEST_P(LateQps, WaitUntilTheDeviceHasRoomForThem) {
  wrap();
  stop();
  resume();
  largest = 0;
  ASSERT_EQ(send(m.qp, 2, 77), 0);
  EXPECT_TRUE(m.context->progress());
  EXPECT_FALSE(is_made(m.qp));
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  EXPECT_EQ(m_other->modify(reset, IBV_QP_STATE), ENOMEM);
  EXPECT_EQ(m_other->state(), IBV_QPS_RTS);
  largest = ~0u;
  ASSERT_EQ(receive(p, p.qp, 1, 1), 0);
  carry();
  p.completions(1);
  m.completions(1);
  EXPECT_EQ(p.memory[1], 77u);
  expect_traffic_of_both();
}

INSTANTIATE_TEST_SUITE_P(, LateQps, ::testing::Values(true, false),
                         [](const auto& leaves_early) -> std::string {
                           return leaves_early.param ? "LeaveBeforeTheStop" : "LeaveInTheStop";
                         });

}  // namespace
}  // namespace ferry::virt::testing
