#include <poll.h>

#include <atomic>
#include <thread>

#include "channel_rnic.h"
#include "two_programs.h"

// What a program does with its QPs in the midst of a move or of an introduction: it connects, resets
// and destroys them, sets them to ERR, and makes other objects.
namespace ferry::virt::testing {
namespace {

struct Interruptions : UnconnectedPrograms {
  static int to_rtr(Side& side, Side& peer) {
    return side.qp->modify(r::attributes(IBV_QPS_RTR, peer.qp->qpn(), peer.gid()), r::kRtrMask);
  }
  static int to_rts(Side& side) {
    return side.qp->modify(r::attributes(IBV_QPS_RTS, 0, {}), r::kRtsMask);
  }
  static int reset(Side& side) {
    return side.qp->modify(r::attributes(IBV_QPS_RESET, 0, {}), IBV_QP_STATE);
  }
  bool completes(Side& side, int ms = 1000) {
    ibv_wc wc{};
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    while (std::chrono::steady_clock::now() < end) {
      m.context->progress();
      p.context->progress();
      if (side.cq->poll(1, &wc) > 0) {
        return wc.status == IBV_WC_SUCCESS;
      }
    }
    return false;
  }
};

// The program goes to RTS between SWITCH and READY.
TEST_F(Interruptions, RtsBetweenSwitchAndReady) {
  move(m, kSecond);
  tell(p, {kFirst});
  connect(m, p);
  ASSERT_EQ(to_rtr(p, m), 0);
  while (behind(p.qp)->state() == IBV_QPS_INIT) {
    carry_once(m, p, "m: ");
    if (behind(p.qp)->state() != IBV_QPS_INIT) break;
    carry_once(p, m, "p: ");
  }
  ASSERT_EQ(to_rts(p), 0);
  EXPECT_EQ(p.send(2, 77), 0);
  carry();
  EXPECT_EQ(p.send(3, 77), 0);
}

// P does not know; it is suspended in RTR.
TEST_F(Interruptions, RtsOfASuspendedQp) {
  move(m, kSecond);
  ASSERT_EQ(to_rtr(p, m), 0);
  connect(m, p);
  ASSERT_TRUE(carry_once(m, p, "m: "));
  p.context->progress();
  ASSERT_EQ(to_rts(p), 0);
  EXPECT_EQ(p.send(2, 77), 0);
  ASSERT_EQ(m.receive(1, 1), 0);
  carry();
  EXPECT_EQ(behind(p.qp)->state(), IBV_QPS_RTS);
  EXPECT_EQ(p.send(3, 77), 0);
  EXPECT_TRUE(completes(p));
}

// ERR of a suspended QP.
TEST_F(Interruptions, ErrOfASuspendedQp) {
  connect(p, m);
  connect(m, p);
  m.context->suspend_peers();
  carry();
  ASSERT_TRUE(m.context->peers_are_suspended());
  ASSERT_EQ(p.qp->modify(r::attributes(IBV_QPS_ERR, 0, {}), IBV_QP_STATE), 0);
  m.stop();
  m.park();
  m.device->address = kSecond;
  m.unpark();
  m.context->resume(false);
  carry();
  EXPECT_EQ(p.qp->state(), IBV_QPS_ERR);
}

// Reset and reconnection of both while one is suspended.
TEST_F(Interruptions, ResetWhileSuspended) {
  connect(p, m);
  connect(m, p);
  use();
  m.context->suspend_peers();
  carry();
  ASSERT_TRUE(m.context->peers_are_suspended());
  end_use();
  ASSERT_EQ(reset(p), 0);
  m.context->release_peers();
  ASSERT_EQ(reset(m), 0);
  for (Side* s : {&m, &p}) r::to_init(s->qp);
  connect(p, m);
  connect(m, p);
  ASSERT_EQ(m.receive(1, 1), 0);
  EXPECT_EQ(p.send(2, 77), 0);
  carry();
  EXPECT_TRUE(completes(p));
}

// M waits for SWITCHED, its program resets the QP and begins anew; with the old peer, which too.
TEST_F(Interruptions, ResetWhileAwaitingSwitched) {
  connect(p, m);
  connect(m, p);
  suspend(m);
  m.stop();
  m.park();
  m.device->address = kSecond;
  m.unpark();
  m.context->resume(false);
  ASSERT_EQ(reset(m), 0);
  ASSERT_EQ(reset(p), 0);
  m.letters.clear();
  std::vector<device::Letter> gone;
  m.context->take_letters(&gone);
  for (Side* s : {&m, &p}) r::to_init(s->qp);
  tell(p, {kFirst});
  connect(p, m);
  connect(m, p);
  ASSERT_EQ(m.receive(1, 1), 0);
  EXPECT_EQ(p.send(2, 77), 0);
  carry();
  EXPECT_TRUE(completes(p));
  EXPECT_TRUE(completes(m));
}

// Like that, but QP to one in the same program: plain connection.
TEST_F(Interruptions, ResetWhileAwaitingSwitchedThenOwn) {
  connect(p, m);
  connect(m, p);
  suspend(m);
  m.stop();
  m.park();
  m.device->address = kSecond;
  m.unpark();
  m.context->resume(false);
  ASSERT_EQ(reset(m), 0);
  device::Qp* other = m.create_qp();
  r::to_init(m.qp);
  r::to_init(other);
  r::to_rts(m.qp, other->qpn(), m.gid());
  r::to_rts(other, m.qp->qpn(), m.gid());
  ASSERT_EQ(m.receive(1, 1), 0);
  std::uint64_t value = 5;
  ASSERT_EQ(
      Send(IBV_WR_SEND, 7, &value, 8, nullptr, IBV_SEND_SIGNALED | IBV_SEND_INLINE).post(other), 0);
  carry();
  EXPECT_TRUE(completes(m));
  EXPECT_TRUE(completes(m));
  EXPECT_EQ(m.memory[1], 5u);
}

// Reset in kDrain: CQ stays stopped.
TEST_F(Interruptions, ResetWhileDraining) {
  connect(p, m);
  connect(m, p);
  device::Qp* second = p.create_qp();
  (void)second;
  ASSERT_EQ(p.send(2, 77), 0);  // no receive: RNR
  m.context->suspend_peers();
  ASSERT_TRUE(carry_once(m, p, "m: "));
  for (int i = 0; i < 3; ++i) p.context->progress();
  ASSERT_EQ(reset(p), 0);
  m.context->release_peers();
  ASSERT_EQ(reset(m), 0);
  for (Side* s : {&m, &p}) r::to_init(s->qp);
  connect(p, m);
  connect(m, p);
  carry();
  // now an ordinary suspension
  m.context->suspend_peers();
  for (int i = 0; i < 2000 && !m.context->peers_are_suspended(); ++i) {
    carry();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(m.context->peers_are_suspended());
}

// The letter of M is given back after 60 s; then P connects.
TEST_F(Interruptions, PeerConnectsAfterAMinute) {
  move(m, kSecond);
  tell(p, {kFirst});
  connect(m, p);
  std::vector<device::Letter> letters;
  m.context->take_letters(&letters);
  ASSERT_EQ(letters.size(), 1u);
  ASSERT_EQ(m.context->deliver({letters[0].to, letters[0].from, {}}), 0);
  connect(p, m);
  ASSERT_EQ(m.receive(1, 1), 0);
  ASSERT_EQ(p.send(2, 77), 0);
  carry();
  EXPECT_TRUE(completes(p));
  EXPECT_EQ(behind(p.qp)->state(), IBV_QPS_RTS) << "apart for ever";
}

// An index that has no GID.
TEST_F(Interruptions, WrongIndexOfTheSource) {
  auto wanted = r::attributes(IBV_QPS_RTR, m.qp->qpn(), m.gid());
  wanted.ah_attr.grh.sgid_index = 200;
  const int plain = p.qp->modify(wanted, r::kRtrMask);
  tell(p, {kFirst});
  const int apart = p.qp->modify(wanted, r::kRtrMask);
  std::vector<device::Letter> letters;
  p.context->take_letters(&letters);
  EXPECT_EQ(plain, apart);
}

// An ERR QP with a talk.
TEST_F(Interruptions, ThirdMoveWithAQpInErr) {
  connect(p, m);
  connect(m, p);
  move(m, kSecond);
  ASSERT_EQ(m.qp->modify(r::attributes(IBV_QPS_ERR, 0, {}), IBV_QP_STATE), 0);
  move(m, kFourth);
  m.context->suspend_peers();
  carry();
  EXPECT_TRUE(m.context->peers_are_suspended());
  std::uint32_t unacked = 0;
  EXPECT_EQ(m.context->quiesce(std::chrono::seconds(1), &unacked), 0);
}

// M has told P, and resets its QP.
TEST_F(Interruptions, TheMoverResetsMeanwhile) {
  connect(p, m);
  connect(m, p);
  suspend(m);
  ASSERT_EQ(reset(m), 0);
  m.stop();
  m.park();
  m.device->address = kSecond;
  m.unpark();
  m.context->resume(false);
  EXPECT_EQ(p.send(2, 77), 0);
  carry();
  EXPECT_FALSE(p.context->awaits_letters());
  ASSERT_EQ(p.qp->modify(r::attributes(IBV_QPS_ERR, 0, {}), IBV_QP_STATE), 0);
  EXPECT_EQ(wait_completion(p.cq).wr_id, 2u) << "the device has the request";
}

// A move of the peer is given up while this end, which is apart, is stopped.
TEST_F(Interruptions, GoOnWhileApartAndStopped) {
  move(m, kSecond);
  tell(p, {kFirst});
  connect(m, p);
  connect(p, m);
  m.context->suspend_peers();
  p.context->suspend_peers();
  carry();
  ASSERT_TRUE(m.context->peers_are_suspended());
  m.stop();
  p.context->release_peers();
  carry();
  m.park();
  m.device->address = kFourth;
  m.unpark();
  m.context->resume(false);
  carry();
  ASSERT_EQ(p.receive(1, 1), 0);
  ASSERT_EQ(m.send(2, 77), 0);
  EXPECT_TRUE(completes(m));
}

TEST_F(Interruptions, GoOnWhileSeekingAndStopped) {
  tell(p, {kFirst});
  connect(m, p);
  m.context->suspend_peers();
  connect(p, m);
  p.context->suspend_peers();
  carry();
  ASSERT_TRUE(p.context->peers_are_suspended());
  p.stop();
  m.context->release_peers();
  carry();
  p.park();
  p.device->address = kFourth;
  p.unpark();
  p.context->resume(false);
  carry();
  ASSERT_EQ(m.receive(1, 1), 0);
  ASSERT_EQ(p.send(2, 77), 0);
  EXPECT_TRUE(completes(p));
}

// A program modifies to RTS just after the move of an ordinary connection
TEST_F(Interruptions, RtsBetweenSwitchAndSwitchedOfTheMover) {
  connect(p, m);
  ASSERT_EQ(to_rtr(m, p), 0);
  suspend(m);
  m.stop();
  m.park();
  m.device->address = kSecond;
  m.unpark();
  m.context->resume(false);
  EXPECT_EQ(m.qp->state(), IBV_QPS_RTR);
  EXPECT_EQ(to_rts(m), 0);
  carry();
  EXPECT_EQ(m.qp->state(), IBV_QPS_RTS);
}
void play_events(bool resets, bool suspends = true) {
  Side m, p;
  m.start(kThird);
  auto inner = std::make_unique<ChannelRnic>();
  p.rnic = std::make_unique<Rnic>(std::move(inner));
  int error = 0;
  p.context = p.rnic->open_movable(p.sink, p.moves, &error);
  ASSERT_NE(p.context, nullptr);
  ASSERT_EQ(p.context->alloc_pd(&p.pd), 0);
  device::Channel* channel = nullptr;
  ASSERT_EQ(p.context->create_channel(&channel), 0);
  device::CqInit init{1000};
  init.channel = channel;
  ASSERT_EQ(p.context->create_cq(init, &p.cq), 0);
  p.qp = p.create_qp();
  p.mr = p.reg(p.memory.data(), sizeof p.memory);
  for (Side* s : {&m, &p}) {
    r::to_init(s->qp);
    s->context->prepare();
  }
  r::to_rts(p.qp, m.qp->qpn(), m.gid());
  r::to_rts(m.qp, p.qp->qpn(), p.gid());
  device::Qp *one = p.create_qp(), *two = p.create_qp();
  p.connect(one, two);
  ASSERT_EQ(p.send(2, 77), 0);  // no receive: it waits
  m.context->suspend_peers();
  std::vector<device::Letter> letters;
  m.context->take_letters(&letters);
  for (const auto& letter : letters) {
    if (suspends) {
      ASSERT_EQ(p.context->deliver(letter), 0);
    }
  }
  p.context->progress();
  if (resets) {
    ASSERT_EQ(p.qp->modify(r::attributes(IBV_QPS_RESET, 0, {}), IBV_QP_STATE), 0);
  } else {
    ASSERT_EQ(p.context->destroy(p.qp), 0);
  }
  p.context->progress();
  ibv_wc wc{};
  while (p.cq->poll(1, &wc) > 0) {
  }
  ASSERT_EQ(r::post_receive(two, 1, &p.memory[1], 8, p.mr), 0);
  ASSERT_EQ(p.cq->arm(false), 0);
  std::uint64_t value = 5;
  ASSERT_EQ(Send(IBV_WR_SEND, 7, &value, 8, nullptr, IBV_SEND_SIGNALED | IBV_SEND_INLINE).post(one),
            0);
  pollfd fd{channel->descriptor(), POLLIN, 0};
  for (int i = 0; i < 100; ++i) {
    p.context->progress();
    if (::poll(&fd, 1, 20) > 0) break;
  }
  EXPECT_NE(fd.revents & POLLIN, 0) << "no event";
  EXPECT_GT(p.cq->poll(1, &wc), 0) << "although there is a completion";
}

TEST_F(Interruptions, EventsAfterAReset) {
  play_events(true);
}

TEST_F(Interruptions, EventsControl) {
  play_events(true, false);
}

TEST_F(Interruptions, EventsAfterADestroy) {
  play_events(false);
}
// 10: the introduction is over before introduce() has run (see queue_pair.cc keep_apart). Played by
// threads: MRs come and go while QPs are connected.
TEST_F(Interruptions, RegionsComeAndGo) {
  move(m, kSecond);
  tell(p, {kFirst});
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  static std::array<std::uint64_t, 64> memory{};
  for (int t = 0; t < 300; ++t) m.reg(memory.data(), sizeof memory);
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (!ends) {
        device::Mr* mr = m.reg(memory.data(), sizeof memory);
        m.context->destroy(mr);
      }
    });
  for (int i = 0; i < 20000; ++i) {
    ASSERT_EQ(to_rtr(m, p), 0);
    ASSERT_EQ(reset(m), 0);
    r::to_init(m.qp);
  }
  ends = true;
  for (auto& t : threads) t.join();
}

TEST_F(Interruptions, OwnQpsComeAndGo) {
  tell(m, {kFirst});
  std::atomic<bool> ends{false};
  for (int i = 0; i < 100; ++i) m.create_qp();
  std::thread other([&] {
    while (!ends) m.context->destroy(m.create_qp());
  });
  for (int i = 0; i < 20000; ++i) {
    auto wanted = r::attributes(IBV_QPS_RTR, 12345, m.gid());
    ASSERT_EQ(m.qp->modify(wanted, r::kRtrMask), 0);
    ASSERT_EQ(reset(m), 0);
    r::to_init(m.qp);
  }
  ends = true;
  other.join();
}
}  // namespace
}  // namespace ferry::virt::testing
