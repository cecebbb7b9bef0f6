#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "two_programs.h"

// The memory windows of programs that move, and of their peers: the rkey that both ends know stays valid, and
// leads to no more than before.
namespace ferry::virt::testing {
namespace {

constexpr unsigned kRights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr std::uint64_t kBind = 900, kInvalidate = 901, kWrite = 902, kEnd = 903;

// A window of a program, with the structs that the program has of it.
struct Window {
  device::Mw* object = nullptr;
  ibv_mw named{};
  ibv_mr region{};

  std::uint32_t next_key() const { return ibv_inc_rkey(object->rkey()); }
  // A request that binds eight bytes at `place`.
  ibv_send_wr bind(const Side& side, const device::Mr* mr, std::size_t place, std::uint32_t rkey) {
    named.handle = object->handle();
    named.rkey = object->rkey();
    region.lkey = mr->lkey();
    ibv_send_wr request{};
    request.wr_id = kBind;
    request.opcode = IBV_WR_BIND_MW;
    request.send_flags = IBV_SEND_SIGNALED;
    request.bind_mw = {
        &named, rkey, {&region, reinterpret_cast<std::uintptr_t>(&side.memory[place]), 8, kRights}};
    return request;
  }
};

struct MemoryWindows : TwoPrograms {
  device::Mr* bindable = nullptr;  // of M, without remote rights
  Window window;                   // of M

  void SetUp() override {
    m.start();
    p.start();
    m.connect(m.qp, p.qp);
    m.context->prepare();
    p.context->prepare();
    bindable = m.reg(m.memory.data(), sizeof m.memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  }
  void alloc(ibv_mw_type type) { ASSERT_EQ(m.context->alloc_mw(m.pd, type, &window.object), 0); }
  static ibv_wc_status completion(Side& side, std::uint64_t id) {
    const ibv_wc wc = wait_completion(side.cq);
    EXPECT_EQ(wc.wr_id, id);
    return wc.status;
  }
  // Binds the window of type 2 to eight bytes. Gives its key.
  std::uint32_t bind(std::size_t place, device::Qp* qp = nullptr) {
    const std::uint32_t rkey = window.next_key();
    ibv_send_wr request = window.bind(m, bindable, place, rkey);
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ((qp != nullptr ? qp : m.qp)->post_send(&request, &bad), 0);
    EXPECT_EQ(completion(m, kBind), IBV_WC_SUCCESS);
    return rkey;
  }
  device::MwBind bind_of_type_1(std::size_t place) const {
    device::MwBind bind;
    bind.wr_id = kBind;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.mr = bindable;
    bind.address = reinterpret_cast<std::uintptr_t>(&m.memory[place]);
    bind.length = 8;
    bind.access = kRights;
    return bind;
  }
  std::uint32_t bind_type_1(std::size_t place, device::Qp* qp = nullptr) {
    std::uint32_t rkey = 0;
    EXPECT_EQ((qp != nullptr ? qp : m.qp)->bind_mw(window.object, bind_of_type_1(place), &rkey), 0);
    EXPECT_EQ(completion(m, kBind), IBV_WC_SUCCESS);
    EXPECT_EQ(rkey, window.object->rkey());
    return rkey;
  }
  ibv_wc_status invalidate(std::uint32_t rkey) {
    Send request(IBV_WR_LOCAL_INV, kInvalidate, nullptr, 0, nullptr);
    request.wr.invalidate_rkey = rkey;
    EXPECT_EQ(request.post(m.qp), 0);
    return completion(m, kInvalidate);
  }
  // P ends the window by a message to M.
  void end_from_peer(std::uint32_t rkey) {
    ASSERT_EQ(m.receive(kEnd, 1), 0);
    Send request(IBV_WR_SEND_WITH_INV, kEnd, &p.memory[1], 8, p.mr);
    request.wr.invalidate_rkey = rkey;
    ASSERT_EQ(request.post(p.qp), 0);
    ASSERT_EQ(completion(p, kEnd), IBV_WC_SUCCESS);
  }
  // P writes into M's memory.
  ibv_wc_status write(std::size_t place, std::uint32_t rkey, device::Qp* qp = nullptr) {
    p.memory[0] = ++value;
    EXPECT_EQ(Send(IBV_WR_RDMA_WRITE, kWrite, p.memory.data(), 8, p.mr)
                  .remote(&m.memory[place], rkey)
                  .post(qp != nullptr ? qp : p.qp),
              0);
    return completion(p, kWrite);
  }
  void expect_reached(std::size_t place, std::uint32_t rkey, device::Qp* qp = nullptr) {
    EXPECT_EQ(write(place, rkey, qp), IBV_WC_SUCCESS);
    EXPECT_EQ(m.memory[place], value);
  }
  // The connection fails by that.
  void expect_refused(std::size_t place, std::uint32_t rkey) {
    EXPECT_EQ(write(place, rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_NE(m.memory[place], value);
  }
  std::uint64_t value = 1000;
};

TEST_F(MemoryWindows, OfType2AreBoundAgain) {
  alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = bind(8);
  for (int i = 0; i < 3; ++i) {
    move(m);
    EXPECT_NE(behind(window.object)->rkey() >> 8, rkey >> 8);
    expect_reached(8, rkey);
  }
  EXPECT_TRUE(m.nothing_more()) << "the program sees no bind of Ferry's";
  expect_refused(9, rkey);
}

TEST_F(MemoryWindows, OfType1AreBoundAgain) {
  alloc(IBV_MW_TYPE_1);
  const std::uint32_t rkey = bind_type_1(8);
  for (int i = 0; i < 3; ++i) {
    move(m);
    EXPECT_NE(behind(window.object)->rkey() >> 8, rkey >> 8);
    expect_reached(8, rkey);
  }
  EXPECT_TRUE(m.nothing_more());
  expect_refused(9, rkey);
}

TEST_F(MemoryWindows, ArePutOntoTheNewQpOfAPeerThatMoves) {
  alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = bind(8);
  const device::Mw* object = behind(window.object);
  for (int i = 0; i < 3; ++i) {
    move(p);
    EXPECT_EQ(behind(window.object), object);
    EXPECT_EQ(object->rkey(), rkey);
    expect_reached(8, rkey);
  }
  move(m);
  move(p);
  expect_reached(8, rkey);
  EXPECT_TRUE(m.nothing_more());
}

TEST_F(MemoryWindows, WhenBothEndsMoveAtOnce) {
  alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = bind(8);
  m.context->suspend_peers();
  p.context->suspend_peers();
  carry();
  for (Side* side : {&m, &p}) {
    ASSERT_TRUE(side->context->peers_are_suspended());
    side->stop();
  }
  for (Side* side : {&p, &m}) side->park();
  for (Side* side : {&p, &m}) side->unpark();
  for (Side* side : {&p, &m}) side->context->resume(false);
  carry();
  expect_reached(8, rkey);
}

// What the peer has posted meanwhile comes first of all, and finds the windows bound.
TEST_F(MemoryWindows, ARequestThatThePeerHolds) {
  alloc(IBV_MW_TYPE_1);
  const std::uint32_t first = bind_type_1(8);
  alloc(IBV_MW_TYPE_2);
  const std::uint32_t second = bind(9);
  suspend(m);
  p.memory[0] = 55;
  for (const auto& [place, rkey] : {std::pair{8, first}, std::pair{9, second}}) {
    ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, kWrite, p.memory.data(), 8, p.mr)
                  .remote(&m.memory[static_cast<std::size_t>(place)], rkey)
                  .post(p.qp),
              0);
  }
  m.stop();
  m.park();
  m.unpark();
  m.context->resume(false);
  carry();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(completion(p, kWrite), IBV_WC_SUCCESS);
  EXPECT_EQ(m.memory[8], 55u);
  EXPECT_EQ(m.memory[9], 55u);
}

// The stop's own marker tells that they are carried out. The receive that the stop flushes then has the same
// wr_id.
TEST_F(MemoryWindows, WhoseBindsHaveNoCompletions) {
  alloc(IBV_MW_TYPE_2);
  ASSERT_EQ(m.receive(kBind, 1), 0);
  std::uint32_t rkey = 0;
  for (const std::size_t place : {8, 9}) {
    ibv_send_wr* bad = nullptr;
    if (rkey != 0) {
      Send ends(IBV_WR_LOCAL_INV, kInvalidate, nullptr, 0, nullptr, 0);
      ends.wr.invalidate_rkey = rkey;
      ASSERT_EQ(ends.post(m.qp), 0);
    }
    rkey = window.next_key();
    ibv_send_wr request = window.bind(m, bindable, place, rkey);
    request.send_flags = 0;
    ASSERT_EQ(m.qp->post_send(&request, &bad), 0);
  }
  move(m);
  EXPECT_TRUE(m.nothing_more());
  expect_reached(9, rkey);
  expect_refused(8, rkey);
}

TEST_F(MemoryWindows, WhoseAddressesBeginWithZero) {
  alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = window.next_key();
  ibv_send_wr request = window.bind(m, bindable, 8, rkey);
  request.bind_mw.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(m.qp->post_send(&request, &bad), 0);
  EXPECT_EQ(completion(m, kBind), IBV_WC_SUCCESS);
  move(m);
  p.memory[0] = 66;
  ASSERT_EQ(
      Send(IBV_WR_RDMA_WRITE, kWrite, p.memory.data(), 8, p.mr).remote(nullptr, rkey).post(p.qp),
      0);
  EXPECT_EQ(completion(p, kWrite), IBV_WC_SUCCESS);
  EXPECT_EQ(m.memory[8], 66u);
}

TEST_F(MemoryWindows, StayWhereAMoveIsGivenUp) {
  alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = bind(8);
  suspend(m);
  m.stop();
  m.context->resume(true);
  carry();
  expect_reached(8, rkey);
  suspend(m);
  m.stop();
  m.park();
  m.unpark();
  m.context->resume(true);
  carry();
  expect_reached(8, rkey);
}

TEST_F(MemoryWindows, AreBoundAfterAMoveUnderOtherVariants) {
  alloc(IBV_MW_TYPE_2);
  move(m);
  std::uint32_t rkey = 0;
  for (std::size_t place = 8; place < 12; ++place) {
    rkey = bind(place);
    expect_reached(place, rkey);
    if (place == 9) move(m);
    if (place == 10) move(p);
    if (place < 11) {
      EXPECT_EQ(invalidate(rkey), IBV_WC_SUCCESS);
    }
  }
  expect_refused(11, rkey - 1);
}

TEST_F(MemoryWindows, OfType1AreBoundAfterAMoveUnderOtherVariants) {
  alloc(IBV_MW_TYPE_1);
  const std::uint32_t first = bind_type_1(7);
  move(m);
  std::uint32_t rkey = 0;
  for (std::size_t place = 8; place < 12; ++place) {
    rkey = bind_type_1(place);
    EXPECT_EQ(rkey >> 8, first >> 8);
    expect_reached(place, rkey);
    if (place == 9) move(m);
    if (place == 10) move(p);
  }
  expect_refused(11, first);
}

TEST_F(MemoryWindows, OfType1AreUnboundByNoByte) {
  alloc(IBV_MW_TYPE_1);
  bind_type_1(8);
  device::MwBind nothing;
  nothing.wr_id = kBind;
  nothing.send_flags = IBV_SEND_SIGNALED;
  std::uint32_t rkey = 0;
  ASSERT_EQ(m.qp->bind_mw(window.object, nothing, &rkey), 0);
  EXPECT_EQ(completion(m, kBind), IBV_WC_SUCCESS);
  move(m);
  expect_refused(8, rkey);
}

TEST_F(MemoryWindows, ThatWereMadeAfterAMove) {
  move(m);
  alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = bind(8);
  EXPECT_EQ(behind(window.object)->rkey(), rkey);
  expect_reached(8, rkey);
  move(m);
  expect_reached(8, rkey);
}

TEST_F(MemoryWindows, ThatTheirProgramHasInvalidated) {
  alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = bind(8);
  EXPECT_EQ(invalidate(rkey), IBV_WC_SUCCESS);
  move(m);
  EXPECT_EQ(m.context->destroy(bindable), 0) << "nothing is bound to it";
  expect_refused(8, rkey);
}

TEST_F(MemoryWindows, ThatThePeerHasInvalidated) {
  for (const bool is_polled : {true, false}) {
    if (window.object == nullptr) alloc(IBV_MW_TYPE_2);
    const std::uint32_t rkey = bind(8);
    end_from_peer(rkey);
    const auto poll = [&] {
      const ibv_wc wc = wait_completion(m.cq);
      EXPECT_EQ(wc.wr_id, kEnd);
      EXPECT_NE(wc.wc_flags & IBV_WC_WITH_INV, 0u);
      EXPECT_EQ(wc.invalidated_rkey, rkey);
    };
    if (is_polled) poll();
    move(m);
    if (!is_polled) poll();
    expect_reached(9, bind(9));
    EXPECT_EQ(invalidate(window.object->rkey()), IBV_WC_SUCCESS);
  }
  expect_refused(9, window.object->rkey());
}

TEST_F(MemoryWindows, ArePeersToInvalidateAfterAMove) {
  alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = bind(8);
  move(m);
  end_from_peer(rkey);
  const ibv_wc wc = wait_completion(m.cq);
  EXPECT_EQ(wc.invalidated_rkey, rkey);
  move(m);
  expect_refused(8, rkey);
}

// What a request would have changed is as before when the request fails, or is flushed behind one that fails.
TEST_F(MemoryWindows, WhoseBindFailsStayAsTheyWere) {
  device::Qp *mine = m.create_qp(), *its = p.create_qp();
  m.connect(mine, its);
  alloc(IBV_MW_TYPE_1);
  const std::uint32_t rkey = bind_type_1(8);
  device::MwBind beyond = bind_of_type_1(8);
  beyond.wr_id = 1;
  beyond.length = sizeof m.memory;
  device::MwBind flushed = bind_of_type_1(10);
  flushed.wr_id = 2;
  std::uint32_t none = 0;
  ASSERT_EQ(mine->bind_mw(window.object, beyond, &none), 0);
  EXPECT_EQ(completion(m, 1), IBV_WC_MW_BIND_ERR);
  ASSERT_EQ(mine->bind_mw(window.object, flushed, &none), 0);
  EXPECT_EQ(completion(m, 2), IBV_WC_WR_FLUSH_ERR);
  expect_reached(8, rkey);
  move(m);
  expect_reached(8, rkey);
}

TEST_F(MemoryWindows, HoldTheirRegionAfterAMove) {
  alloc(IBV_MW_TYPE_2);
  bind(8);
  move(m);
  EXPECT_EQ(m.context->destroy(bindable), EBUSY);
  EXPECT_EQ(m.context->destroy(window.object), 0);
  EXPECT_EQ(m.context->destroy(bindable), 0);
}

// A window of type 2 ends with its QP, one of type 1 does not.
TEST_F(MemoryWindows, WhoseQpIsDestroyed) {
  device::Qp *mine = m.create_qp(), *its = p.create_qp();
  m.connect(mine, its);
  alloc(IBV_MW_TYPE_1);
  const std::uint32_t first = bind_type_1(8, mine);
  const Window of_type_1 = window;
  alloc(IBV_MW_TYPE_2);
  bind(9, mine);
  ASSERT_EQ(m.context->destroy(mine), 0);
  ASSERT_EQ(p.context->destroy(its), 0);
  move(m);
  expect_reached(8, first);
  const std::uint32_t rkey = bind(10);
  expect_reached(10, rkey);
  EXPECT_EQ(m.context->destroy(of_type_1.object), 0);
  expect_refused(8, first);
}

TEST_F(MemoryWindows, WhoseQpIsInTheErrorStateAreNotBoundAgain) {
  alloc(IBV_MW_TYPE_2);
  bind(8);
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(m.qp->modify(error, IBV_QP_STATE), 0);
  move(m);
  EXPECT_EQ(m.context->destroy(bindable), 0);
  EXPECT_EQ(m.context->destroy(window.object), 0);
}

// Its QP waits for the peer, so that the window is not bound yet.
TEST_F(MemoryWindows, WhoseQpIsResetBeforeItIsConnected) {
  alloc(IBV_MW_TYPE_2);
  bind(8);
  suspend(m);
  m.stop();
  m.park();
  m.unpark();
  m.context->resume(false);
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  for (Side* side : {&m, &p}) {
    ASSERT_EQ(side->qp->modify(reset, IBV_QP_STATE), 0);
    side->letters.clear();
  }
  m.connect(m.qp, p.qp);
  carry();
  const std::uint32_t rkey = bind(9);
  expect_reached(9, rkey);
  move(m);
  expect_reached(9, rkey);
}

// The program may use its structs for something else as soon as it has posted the request.
TEST_F(MemoryWindows, ABindThatIsHeld) {
  alloc(IBV_MW_TYPE_2);
  suspend(m);
  m.stop();
  const std::uint32_t rkey = window.next_key();
  auto structs = std::make_unique<Window>(window);
  ibv_send_wr request = structs->bind(m, bindable, 8, rkey);
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(m.qp->post_send(&request, &bad), 0);
  *structs = {};
  structs.reset();
  m.park();
  m.unpark();
  m.context->resume(false);
  carry();
  EXPECT_EQ(completion(m, kBind), IBV_WC_SUCCESS);
  expect_reached(8, rkey);
  move(m);
  expect_reached(8, rkey);
}

TEST_F(MemoryWindows, BindsOfType1AreHeldInOrder) {
  alloc(IBV_MW_TYPE_1);
  suspend(p);
  std::uint32_t first = 0, second = 0;
  ASSERT_EQ(p.receive(7, 4), 0);
  ASSERT_EQ(m.qp->bind_mw(window.object, bind_of_type_1(8), &first), 0);
  ASSERT_EQ(m.send(6, 66), 0);
  ASSERT_EQ(m.qp->bind_mw(window.object, bind_of_type_1(9), &second), 0);
  EXPECT_EQ(second, ibv_inc_rkey(first));
  EXPECT_TRUE(m.nothing_more()) << "both are held";
  p.stop();
  p.park();
  p.unpark();
  p.context->resume(false);
  carry();
  EXPECT_EQ(completion(m, kBind), IBV_WC_SUCCESS);
  EXPECT_EQ(completion(m, 6), IBV_WC_SUCCESS);
  EXPECT_EQ(completion(m, kBind), IBV_WC_SUCCESS);
  EXPECT_EQ(completion(p, 7), IBV_WC_SUCCESS);
  expect_reached(9, second);
  expect_refused(8, first);
}

// By ibv_wr_*: a list is posted as a whole, or not at all.
TEST_F(MemoryWindows, ABindInAListThatIsPostedAsAWhole) {
  alloc(IBV_MW_TYPE_2);
  move(m);
  Send invalidation(IBV_WR_LOCAL_INV, kInvalidate, nullptr, 0, nullptr);
  invalidation.wr.invalidate_rkey = window.next_key();
  ibv_send_wr first = window.bind(m, bindable, 8, window.next_key());
  first.next = &invalidation.wr;
  Window again = window, unknown = window;
  const std::uint32_t rkey = ibv_inc_rkey(window.next_key());
  ibv_send_wr second = again.bind(m, bindable, 9, rkey);
  invalidation.wr.next = &second;
  ibv_send_wr bad = unknown.bind(m, bindable, 10, rkey);
  unknown.named.handle ^= 1;
  second.next = &bad;
  EXPECT_EQ(m.qp->post_all(&first), EINVAL);
  EXPECT_TRUE(m.nothing_more());
  EXPECT_EQ(again.object->rkey(), again.named.rkey) << "it is as before";
  second.next = nullptr;
  ASSERT_EQ(m.qp->post_all(&first), 0);
  for (const std::uint64_t id : {kBind, kInvalidate, kBind})
    EXPECT_EQ(completion(m, id), IBV_WC_SUCCESS);
  move(m);
  expect_reached(9, rkey);
  expect_refused(8, rkey);
}

TEST_F(MemoryWindows, AWindowThatDoesNotExistIsRefused) {
  alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = window.next_key();
  ibv_send_wr good = window.bind(m, bindable, 8, rkey);
  Window unknown = window;
  ibv_send_wr wrong = unknown.bind(m, bindable, 9, rkey);
  unknown.named.handle ^= 1;
  good.next = &wrong;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(m.qp->post_send(&good, &bad), EINVAL);
  EXPECT_EQ(bad, &wrong);
  EXPECT_EQ(completion(m, kBind), IBV_WC_SUCCESS);
  move(m);
  expect_reached(8, rkey);
}

// A QP to which a window is bound is in its place before anything comes from its peer: it is not late.
TEST_F(MemoryWindows, KeepTheirQpFromBeingLate) {
  device::Qp *mine = m.create_qp(), *its = p.create_qp();
  m.connect(mine, its);
  alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = bind(8, mine);
  suspend(m);
  m.stop();
  m.park();
  m.unpark();
  m.context->resume(false);
  EXPECT_EQ(behind(m.qp), nullptr) << "nobody has used it";
  ASSERT_NE(behind(mine), nullptr);
  carry();
  EXPECT_NE(behind(m.qp), nullptr);
  expect_reached(8, rkey, its);
}

// M's connection is made after its move, and P learns the keys of all windows by that.
TEST_F(MemoryWindows, APeerThatConnectsAfterAMove) {
  alloc(IBV_MW_TYPE_1);
  const std::uint32_t rkey = bind_type_1(8);
  move(m);
  device::Qp *mine = m.create_qp(), *its = p.create_qp();
  p.context->moved({{device::address_of(m.gid())}, {}});
  m.connect(mine, its);
  carry();
  expect_reached(8, rkey, its);
}

TEST_F(MemoryWindows, BetweenQpsOfOneProgram) {
  device::Qp *one = m.create_qp(), *other = m.create_qp();
  m.connect(one, other);
  alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = bind(8, one);
  move(m);
  m.memory[0] = 77;
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, kWrite, m.memory.data(), 8, m.mr)
                .remote(&m.memory[8], rkey)
                .post(other),
            0);
  EXPECT_EQ(completion(m, kWrite), IBV_WC_SUCCESS);
  EXPECT_EQ(m.memory[8], 77u);
}

// Threads that bind and invalidate without a pause, make windows and destroy them, while either end moves.
TEST_F(MemoryWindows, ThreadsOfTheProgramInTheMidst) {
  std::atomic<bool> ends{false};
  const auto play = [&](const std::function<void(device::Qp*, device::Cq*)>& turn) {
    device::Cq* cq = nullptr;
    device::QpInit init;
    init.pd = m.pd;
    ASSERT_EQ(m.context->create_cq({100}, &cq), 0);
    init.send_cq = init.recv_cq = cq;
    init.cap = {16, 16, 4, 4, 64};
    device::Qp* qp = nullptr;
    ASSERT_EQ(m.context->create_qp(&init, &qp), 0);
    Side::init(qp);
    r::to_rts(qp, qp->qpn(), m.gid());
    while (!ends) turn(qp, cq);
  };
  const auto done = [](device::Cq* cq, std::uint64_t id) {
    const ibv_wc wc = wait_completion(cq);
    EXPECT_EQ(wc.wr_id, id);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  };
  int turns = 0, windows = 0;
  alloc(IBV_MW_TYPE_2);
  std::thread binder([&] {
    play([&](device::Qp* qp, device::Cq* cq) {
      ibv_send_wr* bad = nullptr;
      ibv_send_wr bind = window.bind(m, bindable, 8, window.next_key());
      Send invalidation(IBV_WR_LOCAL_INV, kInvalidate, nullptr, 0, nullptr);
      invalidation.wr.invalidate_rkey = bind.bind_mw.rkey;
      ASSERT_EQ(qp->post_send(&bind, &bad), 0);
      done(cq, kBind);
      ASSERT_EQ(invalidation.post(qp), 0);
      done(cq, kInvalidate);
      ++turns;
    });
  });
  std::thread maker([&] {
    play([&](device::Qp* qp, device::Cq* cq) {
      device::Mw* made = nullptr;
      ASSERT_EQ(m.context->alloc_mw(m.pd, IBV_MW_TYPE_1, &made), 0);
      std::uint32_t rkey = 0;
      ASSERT_EQ(qp->bind_mw(made, bind_of_type_1(9), &rkey), 0);
      done(cq, kBind);
      ASSERT_EQ(m.context->destroy(made), 0);
      ++windows;
    });
  });
  for (int i = 0; i < 10; ++i) {
    move(i % 3 == 2 ? p : m);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ends = true;
  binder.join();
  maker.join();
  EXPECT_GT(turns, 0);
  EXPECT_GT(windows, 0);
  expect_reached(10, bind(10));
}

}  // namespace
}  // namespace ferry::virt::testing
