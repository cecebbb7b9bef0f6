#include "passing_context.h"
#include "two_programs.h"

// QPs that were not in use when their context was stopped: their objects are made after the resume, while
// the program goes on.
namespace ferry::virt::testing {
namespace {

bool is_made(device::Qp* qp) {
  return behind(qp) != nullptr;
}

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

// Two connections, m.qp with p.qp and m_other with p_other. Nothing is under way.
struct LateQps : TwoPrograms {
  device::Qp* m_other = nullptr;
  device::Qp* p_other = nullptr;
  std::uint32_t largest = ~0u;  // of the device of m, behind wrap()

  void SetUp() override {
    m.start(kFirst);
    p.start(kThird);
    m_other = m.create_qp();
    p_other = p.create_qp();
    connect(m.qp, p.qp);
    connect(m_other, p_other);
    m.context->prepare();
    p.context->prepare();
  }
  // One of m with one of p. `timeout`: ibv_qp_attr::timeout of the latter.
  void connect(device::Qp* mine, device::Qp* its, std::uint8_t timeout = 18) {
    Program::init(mine);
    Program::init(its);
    r::to_rts(mine, its->qpn(), p.gid());
    ibv_qp_attr attributes = r::attributes(IBV_QPS_RTR, mine->qpn(), m.gid());
    ASSERT_EQ(its->modify(attributes, r::kRtrMask), 0);
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = timeout;
    ASSERT_EQ(its->modify(attributes, r::kRtsMask), 0);
  }
  // Another connection, whose end at p gives up soon.
  std::pair<device::Qp*, device::Qp*> impatient() {
    std::pair<device::Qp*, device::Qp*> qps{m.create_qp(), p.create_qp()};
    connect(qps.first, qps.second, 10);
    return qps;
  }
  // From its next device on.
  void wrap() {
    m.device->wrap = [&](std::unique_ptr<device::Context> context) {
      return std::make_unique<FullContext>(std::move(context), largest);
    };
  }
  void stop() {
    suspend(m);
    m.stop();
    m.park();
    m.device->address = kSecond;
    trace.clear();
  }
  void resume() {
    m.unpark();
    m.context->resume(false);
  }
  static int send(device::Qp* qp, std::uint64_t id, std::uint64_t value) {
    return Send(IBV_WR_SEND, id, &value, 8, nullptr, IBV_SEND_SIGNALED | IBV_SEND_INLINE).post(qp);
  }
  static int receive(Side& side, device::Qp* qp, std::uint64_t id, std::size_t place) {
    return r::post_receive(qp, id, &side.memory[place], 8, side.mr);
  }
  // While the QPs of m are late. The letters go at once, and m makes none of its QPs.
  void move_peer() {
    p.context->suspend_peers();
    for (const auto& [from, to] : {std::pair{&p, &m}, std::pair{&m, &p}}) {
      std::vector<device::Letter> letters;
      from->context->take_letters(&letters);
      for (const device::Letter& letter : letters) ASSERT_EQ(to->context->deliver(letter), 0);
    }
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
  // One message each way over each connection.
  void expect_traffic_of_both() {
    for (const auto& [mine, its] : {std::pair{m.qp, p.qp}, std::pair{m_other, p_other}}) {
      ASSERT_EQ(receive(m, mine, 1, 1), 0);
      ASSERT_EQ(receive(p, its, 1, 1), 0);
      ASSERT_EQ(send(mine, 2, 77), 0);
      ASSERT_EQ(send(its, 2, 78), 0);
      for (Side* side : {&m, &p}) {
        for (int i = 0; i < 2; ++i) EXPECT_EQ(wait_completion(side->cq).status, IBV_WC_SUCCESS);
      }
      EXPECT_EQ(p.memory[1], 77u);
      EXPECT_EQ(m.memory[1], 78u);
      EXPECT_TRUE(m.nothing_more());
      EXPECT_TRUE(p.nothing_more());
    }
  }
};

TEST_F(LateQps, AreMadeAfterTheResume) {
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
TEST_F(LateQps, AreMadeInSteps) {
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

TEST_F(LateQps, AQpWithRequestsThatAreHeldIsMadeInTheStop) {
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

TEST_F(LateQps, AQpWithRequestsUnderWayIsMadeInTheStop) {
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
TEST_F(LateQps, APeerWithSomethingToDoSaysSo) {
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
TEST_F(LateQps, APeerWithAnOlderLibraryDoesNotSay) {
  m.context->suspend_peers();
  std::vector<device::Letter> written;
  m.context->take_letters(&written);
  ASSERT_EQ(written.size(), 2u);
  for (device::Letter& letter : written) {
    letter.bytes[0] = std::byte{2};  // SUSPENDED
    std::swap(letter.from, letter.to);
    ASSERT_EQ(m.context->deliver(letter), 0);
  }
  EXPECT_TRUE(m.context->peers_are_suspended());
  m.stop();
  m.park();
  resume();
  EXPECT_FALSE(is_made(m.qp));
  EXPECT_FALSE(is_made(m_other));
}

TEST_F(LateQps, WhoseTurnComesFirstHasSomethingToDo) {
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

TEST_F(LateQps, RequestsAndReceivesOfTheMeantimeAreInOrder) {
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

TEST_F(LateQps, TheProgramSeesNoDifference) {
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

TEST_F(LateQps, AWindowIsBoundALittleLater) {
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
TEST_F(LateQps, AQpThatIsResetLetsItsPeerGo) {
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
TEST_F(LateQps, AQpThatIsResetAnswersAPeerThatHasMoved) {
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

TEST_F(LateQps, WhatTheyNeedCannotBeDestroyed) {
  stop();
  resume();
  EXPECT_EQ(m.context->destroy(m.cq), EBUSY);
  EXPECT_EQ(m.context->destroy(m.pd), EBUSY);
  carry();
  expect_traffic_of_both();
}

TEST_F(LateQps, AQpThatFailsInTheMeantimeFlushesWhatItHas) {
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
TEST_F(LateQps, AQpThatIsDestroyedLetsItsPeerGo) {
  const auto [mine, its] = impatient();
  stop();
  resume();
  ASSERT_EQ(send(its, 2, 5), 0);
  ASSERT_EQ(m.context->destroy(mine), 0);
  carry();
  EXPECT_EQ(std::count(trace.begin(), trace.end(), "m: GO_ON"), 1);
  EXPECT_EQ(wait_completion(p.cq).status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(LateQps, AnotherMoveFindsThemAsTheyAre) {
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
TEST_F(LateQps, AQpThatHasFailedBeforeAnotherMoveLetsItsPeerGo) {
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

TEST_F(LateQps, OneThatIsRefusedDoesNotHoldUpTheOthers) {
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

TEST_F(LateQps, AStopThatIsGivenUpLeavesThemForLater) {
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

TEST_F(LateQps, AreMadeAlsoAfterAMoveThatWasRolledBack) {
  stop();
  m.device->address = kFirst;
  m.unpark();
  m.context->resume(true);
  EXPECT_FALSE(is_made(m.qp));
  carry();
  expect_traffic_of_both();
}

// They are made first, or the peer would stop when their SWITCH is on its way.
TEST_F(LateQps, AreMadeBeforeThePeerCanMove) {
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
TEST_F(LateQps, ThePeerMovesMeanwhile) {
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

TEST_F(LateQps, TheirNumbersAreNotGivenToOthers) {
  stop();
  resume();
  std::vector<std::uint32_t> numbers;
  for (int i = 0; i < 50; ++i) numbers.push_back(m.create_qp()->qpn());
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), m.qp->qpn()), 0);
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), m_other->qpn()), 0);
  carry();
  expect_traffic_of_both();
}

TEST_F(LateQps, WaitUntilTheDeviceHasRoomForThem) {
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

}  // namespace
}  // namespace ferry::virt::testing
