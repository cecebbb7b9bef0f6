#include "passing_context.h"
#include "two_connections.h"

// Idle QPs of a context that is about to move leave the device before the stop.
namespace ferry::virt::testing {
namespace {

// What reaches a device, but for polls.
struct Counts {
  std::size_t calls = 0;
};

class CountedQp final : public PassingQp {
 public:
  CountedQp(device::Qp& qp, Counts& counts) : PassingQp(qp), counts_(counts) {}
  int post_send(ibv_send_wr* list, ibv_send_wr** bad) override {
    ++counts_.calls;
    return PassingQp::post_send(list, bad);
  }
  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override {
    ++counts_.calls;
    return PassingQp::post_recv(list, bad);
  }
  int modify(const ibv_qp_attr& attributes, int mask) override {
    ++counts_.calls;
    return PassingQp::modify(attributes, mask);
  }
  int query(ibv_qp_attr* attributes) const override {
    ++counts_.calls;
    return PassingQp::query(attributes);
  }
  int bind_mw(device::Mw* window, const device::MwBind& bind, std::uint32_t* rkey) override {
    ++counts_.calls;
    return PassingQp::bind_mw(window, bind, rkey);
  }

 private:
  Counts& counts_;
};

class CountedContext final : public WrappingContext {
 public:
  CountedContext(std::unique_ptr<device::Context> inner, Counts& counts)
      : WrappingContext(std::move(inner)), counts_(counts) {}
  int reg_mr(const device::MrInit& init, device::Mr** out) override {
    ++counts_.calls;
    return WrappingContext::reg_mr(init, out);
  }
  int alloc_mw(device::Pd* pd, ibv_mw_type type, device::Mw** out) override {
    ++counts_.calls;
    return WrappingContext::alloc_mw(pd, type, out);
  }
  int create_qp(device::QpInit* init, device::Qp** out) override {
    ++counts_.calls;
    return WrappingContext::create_qp(init, out);
  }
  int destroy(device::Object* object) override {
    ++counts_.calls;
    return WrappingContext::destroy(object);
  }

 private:
  std::unique_ptr<PassingQp> wrap(device::Qp& qp) override {
    return std::make_unique<CountedQp>(qp, counts_);
  }

  Counts& counts_;
};

struct IdleQps : TwoConnections {
  // The context is suspended.
  void finish_move() {
    m.stop();
    m.park();
    m.device->address = kSecond;
    resume();
    carry();
  }
  void expect_both_left() {
    EXPECT_FALSE(is_made(m.qp));
    EXPECT_FALSE(is_made(m_other));
  }
};

TEST_F(IdleQps, LeaveBeforeTheStop) {
  const std::uint32_t qpn = m.qp->qpn();
  suspend(m);
  expect_both_left();
  EXPECT_EQ(trace,
            (std::vector<std::string>{"m: SUSPEND", "m: SUSPEND", "p: SUSPENDED", "p: SUSPENDED"}));
  EXPECT_EQ(m.qp->qpn(), qpn);
  EXPECT_EQ(m.qp->state(), IBV_QPS_RTS);
  ibv_qp_attr attributes{};
  ASSERT_EQ(m.qp->query(&attributes), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attributes.dest_qp_num, p.qp->qpn());
  finish_move();
  expect_traffic_of_both();
  suspend(m);
  expect_both_left();
  finish_move();
  expect_traffic_of_both();
}

TEST_F(IdleQps, AQpWithCompletionsThatWaitStays) {
  use();
  suspend(m);
  EXPECT_TRUE(is_made(m.qp));
  EXPECT_FALSE(is_made(m_other));
  ASSERT_EQ(send(m.qp, 7, 70), 0) << "goes out";
  ASSERT_EQ(p.receive(8, 1), 0);
  EXPECT_EQ(m.completions(2), (std::vector<std::uint64_t>{7, 91}));
  EXPECT_EQ(p.completions(2), (std::vector<std::uint64_t>{8, 90}));
  finish_move();
  expect_traffic_of_both();
}

// Those of another QP of the same CQ are found when the idle one leaves.
TEST_F(IdleQps, AQpWhoseCompletionsWereFoundBeforeIsInUse) {
  device::Qp* const mine = m.create_qp();
  connect(mine, p.create_qp());
  use();
  suspend(m);
  EXPECT_FALSE(is_made(mine));
  EXPECT_TRUE(is_made(m.qp));
  m.stop();
  m.park();
  m.device->address = kSecond;
  resume();
  EXPECT_TRUE(is_made(m.qp)) << "not late";
  EXPECT_FALSE(is_made(mine));
  carry();
  end_use();
  expect_traffic_of_both();
}

// Nothing of it is seen where it arrives.
TEST_F(IdleQps, AQpWhosePeerHasSomethingToDoStays) {
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, &p.memory[5], 8, p.mr)
                .remote(&m.memory[5], m.mr->rkey())
                .post(p.qp),
            0);
  suspend(m);
  EXPECT_TRUE(is_made(m.qp));
  EXPECT_FALSE(is_made(m_other));
  p.completions(1);
  finish_move();
  expect_traffic_of_both();
}

TEST_F(IdleQps, AQpToWhichAWindowIsBoundStays) {
  device::Mr* mr = m.reg(m.memory.data(), sizeof m.memory, Program::kRemote | IBV_ACCESS_MW_BIND);
  device::Mw* window = nullptr;
  ASSERT_EQ(m.context->alloc_mw(m.pd, IBV_MW_TYPE_2, &window), 0);
  ibv_mw named{};
  named.handle = window->handle();
  named.rkey = window->rkey();
  ibv_mr region{};
  region.lkey = mr->lkey();
  const std::uint32_t rkey = ibv_inc_rkey(window->rkey());
  Send bind(IBV_WR_BIND_MW, 1, nullptr, 0, nullptr);
  bind.wr.bind_mw = {
      &named,
      rkey,
      {&region, reinterpret_cast<std::uintptr_t>(&m.memory[5]), 8, IBV_ACCESS_REMOTE_WRITE}};
  ASSERT_EQ(bind.post(m.qp), 0);
  m.completions(1);
  suspend(m);
  EXPECT_TRUE(is_made(m.qp));
  EXPECT_FALSE(is_made(m_other));
  finish_move();
  p.memory[5] = 55;
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 2, &p.memory[5], 8, p.mr).remote(&m.memory[5], rkey).post(p.qp),
            0);
  p.completions(1);
  EXPECT_EQ(m.memory[5], 55u);
}

TEST_F(IdleQps, RequestsAndReceivesFromBeforeAndOfTheMeantimeAreInOrder) {
  for (Side* side : {&m, &p}) ASSERT_EQ(side->receive(1, 1), 0);
  suspend(m);
  expect_both_left();
  for (std::uint64_t id = 2; id <= 4; ++id) {
    for (Side* side : {&m, &p}) ASSERT_EQ(side->receive(id, id), 0);
  }
  for (std::uint64_t id = 1; id <= 2; ++id) {
    ASSERT_EQ(m.send(10 + id, 100 + id), 0);
    ASSERT_EQ(p.send(10 + id, 200 + id), 0);
  }
  EXPECT_TRUE(m.nothing_more() && p.nothing_more()) << "held";
  m.stop();
  m.park();
  m.device->address = kSecond;
  resume();
  EXPECT_TRUE(is_made(m.qp)) << "the program has posted meanwhile";
  EXPECT_FALSE(is_made(m_other));
  for (std::uint64_t id = 3; id <= 4; ++id) {
    ASSERT_EQ(m.send(10 + id, 100 + id), 0);
    ASSERT_EQ(p.send(10 + id, 200 + id), 0);
  }
  carry();
  EXPECT_EQ(m.completions(8).size(), 8u);
  EXPECT_EQ(p.completions(8).size(), 8u);
  for (std::uint64_t id = 1; id <= 4; ++id) {
    EXPECT_EQ(p.memory[id], 100 + id);
    EXPECT_EQ(m.memory[id], 200 + id);
  }
  expect_traffic_of_both();
}

// The other QPs of the SRQ use it meanwhile.
TEST_F(IdleQps, TheReceivesOfASharedQueueStayThere) {
  device::Srq* srq = m.create_srq(16);
  std::array<device::Qp*, 2> mine{}, its{};
  for (int i : {0, 1}) {
    mine[i] = m.create_qp({16, 0, 4, 0, 64}, IBV_QPT_RC, srq);
    its[i] = p.create_qp();
    connect(mine[i], its[i]);
  }
  for (std::uint64_t id = 1; id <= 6; ++id)
    ASSERT_EQ(r::post_receive(srq, id, &m.memory[id], 8, m.mr), 0);
  const auto expect_message = [&](device::Qp* qp, std::uint64_t id) {
    ASSERT_EQ(send(qp, 2, 100 + id), 0);
    EXPECT_EQ(wait_completion(m.cq).wr_id, id);
    EXPECT_EQ(wait_completion(p.cq).status, IBV_WC_SUCCESS);
    EXPECT_EQ(m.memory[id], 100 + id);
  };
  expect_message(its[0], 1);
  expect_message(its[1], 2);
  ASSERT_EQ(send(its[0], 2, 103), 0) << "its completion waits at both ends";
  suspend(m);
  EXPECT_TRUE(is_made(mine[0]));
  EXPECT_FALSE(is_made(mine[1]));
  EXPECT_EQ(wait_completion(m.cq).wr_id, 3u);
  EXPECT_EQ(wait_completion(p.cq).status, IBV_WC_SUCCESS);
  ASSERT_EQ(r::post_receive(srq, 7, &m.memory[7], 8, m.mr), 0);
  finish_move();
  for (std::uint64_t id = 4; id <= 7; ++id) expect_message(its[id % 2], id);
  EXPECT_TRUE(m.nothing_more());
}

TEST_F(IdleQps, TheirNumbersAreNotGivenToOthers) {
  suspend(m);
  expect_both_left();
  std::vector<std::uint32_t> numbers;
  for (int i = 0; i < 50; ++i) numbers.push_back(m.create_qp()->qpn());
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), m.qp->qpn()), 0);
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), m_other->qpn()), 0);
  finish_move();
  expect_traffic_of_both();
}

// Its peer is suspended with those of the QPs that are in use.
TEST_F(IdleQps, AConnectionThatIsMadeMeanwhileWaitsForTheStop) {
  suspend(m);
  device::Qp* const mine = m.create_qp();
  connect(mine, p.create_qp());
  EXPECT_FALSE(m.context->peers_are_suspended());
  carry();
  EXPECT_TRUE(m.context->peers_are_suspended());
  EXPECT_TRUE(is_made(mine));
  finish_move();
  expect_traffic_of_both();
}

TEST_F(IdleQps, OneThatFailsMeanwhileFlushesWhatItHas) {
  ASSERT_EQ(m.receive(1, 1), 0);
  suspend(m);
  ASSERT_EQ(m.send(2, 5), 0);
  ibv_qp_attr fail{};
  fail.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(m.qp->modify(fail, IBV_QP_STATE), 0);
  EXPECT_EQ(m.qp->state(), IBV_QPS_ERR);
  finish_move();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(wait_completion(m.cq).status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(m.nothing_more());
}

// The watch takes a moment, in which the test lets something go over m.qp.
struct BusyQps : IdleQps {
  void SetUp() override {
    m.watch = std::chrono::milliseconds(1);
    IdleQps::SetUp();
  }
  void expect_message(device::Qp* from, Side& to, device::Qp* qp) {
    ASSERT_EQ(receive(to, qp, 1, 1), 0);
    ASSERT_EQ(send(from, 2, 77), 0);
    for (Side* side : {&m, &p}) EXPECT_EQ(wait_completion(side->cq).status, IBV_WC_SUCCESS);
  }
};

TEST_F(BusyQps, RunUntilTheIdleOnesHaveLeft) {
  m.context->suspend_peers();
  EXPECT_FALSE(m.context->peers_are_suspended());
  expect_message(m.qp, p, p.qp);
  EXPECT_TRUE(r::eventually([&] {
    m.context->progress();
    return carry_once(m, p, "m: ");
  }));
  EXPECT_EQ(trace, std::vector<std::string>{"m: SUSPEND"}) << "for the idle one";
  while (p.context->progress()) continue;
  EXPECT_TRUE(carry_once(p, m, "p: "));
  EXPECT_FALSE(m.context->peers_are_suspended());
  EXPECT_TRUE(is_made(m_other));
  expect_message(m.qp, p, p.qp);
  expect_message(p.qp, m, m.qp);
  EXPECT_TRUE(r::eventually([&] {
    m.context->progress();
    return !is_made(m_other);
  }));
  expect_message(p.qp, m, m.qp);
  carry();
  EXPECT_TRUE(m.context->peers_are_suspended());
  EXPECT_TRUE(is_made(m.qp));
  EXPECT_EQ(count("m: SUSPEND"), 2u);
  EXPECT_EQ(count("p: SUSPENDED"), 2u);
  finish_move();
  expect_traffic_of_both();
}

// The program has no completion by which it is known.
TEST_F(BusyQps, AreKnownByWhatTheyReceive) {
  m.context->suspend_peers();
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, &p.memory[5], 8, p.mr)
                .remote(&m.memory[5], m.mr->rkey())
                .post(p.qp),
            0);
  EXPECT_EQ(wait_completion(p.cq).status, IBV_WC_SUCCESS);
  carry();
  EXPECT_TRUE(m.context->peers_are_suspended());
  EXPECT_TRUE(is_made(m.qp));
  EXPECT_FALSE(is_made(m_other));
  finish_move();
  expect_traffic_of_both();
}

struct CountedStops : IdleQps {
  Counts counts;

  void SetUp() override {
    m.wrap = [&](std::unique_ptr<device::Context> context) {
      return std::make_unique<CountedContext>(std::move(context), counts);
    };
    IdleQps::SetUp();
  }
  // A move in which m.qp is in use.
  std::size_t calls_in_a_stop() {
    use();
    suspend(m);
    EXPECT_TRUE(is_made(m.qp));
    const std::size_t before = counts.calls;
    m.context->prepare();
    m.stop();
    m.park();
    resume();
    const std::size_t calls = counts.calls - before;
    carry();
    end_use();
    return calls;
  }
};

TEST_F(CountedStops, DoNotGrowWithIdleQps) {
  calls_in_a_stop();
  const std::size_t with_one = calls_in_a_stop();
  EXPECT_GT(with_one, 0u);
  for (int i = 0; i < 20; ++i) connect(m.create_qp(), p.create_qp());
  carry();
  EXPECT_EQ(calls_in_a_stop(), with_one);
  expect_traffic_of_both();
}

}  // namespace
}  // namespace ferry::virt::testing
