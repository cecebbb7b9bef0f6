#include <array>
#include <atomic>
#include <thread>

#include "rig.h"

// A context that leaves the device behind and has its objects made anew. The traps are those that
// the published systems fell into (docs/any_rnic.md).
namespace ferry::virt::testing {
namespace {

using r::Send;
using r::wait_completion;

struct Move : ::testing::Test, Program {
  device::Qp* a = nullptr;
  device::Qp* b = nullptr;
  device::Mr* mr = nullptr;
  std::array<std::uint64_t, 64> memory{};
  void SetUp() override {
    open();
    a = create_qp();
    b = create_qp();
    connect(a, b);
    mr = reg(memory.data(), sizeof memory);
  }
  int receive(device::Qp* qp, std::uint64_t id, std::size_t place) {
    return r::post_receive(qp, id, &memory[place], 8, mr);
  }
  Send send(std::uint64_t id, std::size_t place, unsigned flags = IBV_SEND_SIGNALED) {
    return {IBV_WR_SEND, id, &memory[place], 8, mr, flags};
  }
  // wr_id and qp_num of the completions that come; all are good.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> completions(int count) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> all;
    for (; count > 0; --count) {
      const ibv_wc wc = wait_completion(cq);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc.wr_id;
      all.emplace_back(wc.wr_id, wc.qp_num);
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  bool nothing_more() {
    ibv_wc wc{};
    return cq->poll(1, &wc) == 0;
  }
  void park() {
    ASSERT_EQ(quiesce(), 0);
    device::Parcel parcel;
    ASSERT_EQ(context->park(&parcel), 0);
    EXPECT_EQ(parcel.kind, device::Kind::kVirtual);
    EXPECT_TRUE(parcel.descriptors.empty());
  }
  void unpark() {
    ASSERT_EQ(context->unpark(context->place()), 0);
    context->resume(false);
  }
};

TEST_F(Move, TheApplicationKeepsItsNumbers) {
  const std::uint32_t qpn = a->qpn(), lkey = mr->lkey(), rkey = mr->rkey();
  const ibv_gid before = gid();
  move();
  EXPECT_EQ(a->qpn(), qpn);
  EXPECT_EQ(mr->lkey(), lkey);
  EXPECT_EQ(mr->rkey(), rkey);
  EXPECT_NE(behind(a)->qpn(), qpn) << "another device gave the same number; the test shows nothing";
  EXPECT_NE(behind(mr)->rkey(), rkey);
  EXPECT_EQ(std::memcmp(before.raw, gid().raw, 16), 0);
  ibv_qp_attr attributes{};
  ASSERT_EQ(a->query(&attributes), 0);
  EXPECT_EQ(attributes.dest_qp_num, b->qpn());
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attributes.timeout, 18);
  EXPECT_EQ(attributes.sq_psn, 0xFFFFF0u);
}

TEST_F(Move, EveryOperationWorksByTheNumbersFromBefore) {
  move();
  memory[0] = 7;
  ASSERT_EQ(receive(b, 1, 1), 0);
  ASSERT_EQ(send(2, 0).post(a), 0);
  EXPECT_EQ(completions(2),
            (std::vector<std::pair<std::uint64_t, std::uint32_t>>{{1, b->qpn()}, {2, a->qpn()}}));
  EXPECT_EQ(memory[1], 7u);
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 3, &memory[0], 8, mr).remote(&memory[2], mr->rkey()).post(a),
            0);
  ASSERT_EQ(Send(IBV_WR_RDMA_READ, 4, &memory[3], 8, mr).remote(&memory[0], mr->rkey()).post(b), 0);
  completions(2);
  ASSERT_EQ(Send(IBV_WR_ATOMIC_FETCH_AND_ADD, 5, &memory[4], 8, mr)
                .atomic(&memory[0], mr->rkey(), 3)
                .post(a),
            0);
  completions(1);
  EXPECT_EQ(memory[2], 7u);
  EXPECT_EQ(memory[3], 7u);
  EXPECT_EQ(memory[4], 7u);
  EXPECT_EQ(memory[0], 10u);
}

TEST_F(Move, CompletionsThatWaitAreKeptAndComeFirst) {
  ASSERT_EQ(receive(b, 1, 1), 0);
  ASSERT_EQ(send(2, 0).post(a), 0);
  ASSERT_EQ(quiesce(), 0);
  device::Parcel parcel;
  ASSERT_EQ(context->park(&parcel), 0);
  ibv_wc wc{};
  ASSERT_EQ(cq->poll(1, &wc), 1) << "also while the device is away";
  ASSERT_EQ(context->unpark(parcel), 0);
  context->resume(false);
  ASSERT_EQ(receive(b, 3, 1), 0);
  ASSERT_EQ(send(4, 0).post(a), 0);
  ibv_wc second{};
  ASSERT_EQ(cq->poll(1, &second), 1);
  EXPECT_EQ(wc.wr_id + second.wr_id, 3u) << "those from before the move";
  EXPECT_EQ(completions(2).size(), 2u);
  EXPECT_TRUE(nothing_more());
}

TEST_F(Move, ReceivesThatWereNotConsumedArePostedAgainInOrder) {
  for (std::uint64_t id = 1; id <= 5; ++id) ASSERT_EQ(receive(b, id, id), 0);
  memory[0] = 11;
  ASSERT_EQ(send(10, 0).post(a), 0);
  ASSERT_EQ(send(11, 0).post(a), 0);
  EXPECT_EQ(completions(4).size(), 4u);
  move();
  memory[0] = 12;
  for (std::uint64_t id = 12; id <= 14; ++id) ASSERT_EQ(send(id, 0).post(a), 0);
  const auto all = completions(6);
  EXPECT_EQ(all[0].first, 3u);
  EXPECT_EQ(all[2].first, 5u);
  EXPECT_EQ(memory[2], 11u);
  EXPECT_EQ(memory[3], 12u);
  EXPECT_EQ(memory[5], 12u);
}

// The published artifact copies the elements of suspended posts, but not inline data.
TEST_F(Move, WhatIsPostedInAStopIsCopiedAndPostedInOrder) {
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_EQ(receive(b, id, id), 0);
  ASSERT_EQ(quiesce(), 0);
  std::uint64_t data = 21;
  {
    Send first(IBV_WR_SEND, 11, &data, 8, nullptr, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    ASSERT_EQ(first.post(a), 0);
    first.sge = {};
  }
  data = 22;
  ASSERT_EQ(Send(IBV_WR_SEND, 12, &data, 8, nullptr, IBV_SEND_INLINE).post(a), 0);
  data = 0;
  device::Parcel parcel;
  ASSERT_EQ(context->park(&parcel), 0);
  memory[0] = 23;
  ASSERT_EQ(send(13, 0).post(a), 0) << "also while the device is away";
  EXPECT_TRUE(nothing_more());
  unpark();
  completions(5);
  EXPECT_EQ(memory[1], 21u);
  EXPECT_EQ(memory[2], 22u);
  EXPECT_EQ(memory[3], 23u);
}

TEST_F(Move, TheBufferOfAStopIsAsLargeAsTheQueue) {
  ASSERT_EQ(quiesce(), 0);
  int taken = 0;
  while (send(100, 0, 0).post(a) == 0) ++taken;
  EXPECT_GE(taken, 16);
  EXPECT_LT(taken, 4096);
  Send last = send(101, 0);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(a->post_send(&last.wr, &bad), ENOMEM);
  EXPECT_EQ(bad, &last.wr);
  context->resume(true);
  for (int i = 0; i < taken; ++i) ASSERT_EQ(receive(b, 1, 1), 0);
  completions(taken);
}

TEST_F(Move, ReceivesOfTheTimeInBetweenComeBehindTheOthers) {
  ASSERT_EQ(receive(b, 1, 1), 0);
  park();
  ASSERT_EQ(receive(b, 2, 2), 0);
  unpark();
  ASSERT_EQ(receive(b, 3, 3), 0);
  for (std::uint64_t id = 11; id <= 13; ++id) {
    memory[0] = id;
    ASSERT_EQ(send(id, 0).post(a), 0);
    completions(2);
  }
  EXPECT_EQ(memory[1], 11u);
  EXPECT_EQ(memory[2], 12u);
  EXPECT_EQ(memory[3], 13u);
}

// The published system waits without limit.
TEST_F(Move, ASendThatNobodyReceivesEndsTheStopAtItsDeadline) {
  ASSERT_EQ(send(1, 0).post(a), 0);
  EXPECT_EQ(quiesce(std::chrono::milliseconds(30)), ETIMEDOUT);
  EXPECT_TRUE(nothing_more());
  ASSERT_EQ(send(2, 0).post(a), 0) << "the program goes on";
  EXPECT_TRUE(context->progress()) << "the marker of the stop is still behind the first one";
  ASSERT_EQ(receive(b, 3, 1), 0);
  ASSERT_EQ(receive(b, 4, 1), 0);
  EXPECT_TRUE(r::eventually([&] { return !context->progress(); }));
  EXPECT_EQ(completions(4).size(), 4u);
  ibv_qp_attr attributes{};
  ASSERT_EQ(a->query(&attributes), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RTS);
  move();
}

TEST_F(Move, ReceivesOfTheProgramLetAStopEnd) {
  memory[0] = 5;
  ASSERT_EQ(send(1, 0).post(a), 0);
  std::thread program([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(receive(b, 2, 1), 0);
  });
  EXPECT_EQ(quiesce(), 0);
  program.join();
  context->resume(true);
  completions(2);
  EXPECT_EQ(memory[1], 5u);
}

TEST_F(Move, UnsignaledRequestsAreWaitedForAsWell) {
  memory[0] = 9;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, &memory[0], 8, mr, 0)
                  .remote(&memory[10 + i], mr->rkey())
                  .post(a),
              0);
  }
  ASSERT_EQ(quiesce(), 0);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(memory[10 + i], 9u);
  context->resume(true);
  EXPECT_TRUE(nothing_more());
}

TEST_F(Move, AFailureToEnterLeavesEverythingToBeEnteredAgain) {
  ASSERT_EQ(receive(b, 1, 1), 0);
  park();
  ASSERT_EQ(send(2, 0).post(a), 0);
  device->fails = ENODEV;
  EXPECT_EQ(context->unpark(context->place()), ENODEV);
  device->fails = 0;
  unpark();
  completions(2);
  EXPECT_EQ(context->unpark(context->place()), EINVAL) << "it is not away";
  EXPECT_EQ(context->unpark({device::Kind::kFerry, {}, {}}), EINVAL);
}

TEST_F(Move, ManyMovesInARow) {
  for (std::uint64_t i = 1; i <= 5; ++i) {
    ASSERT_EQ(receive(b, i, i), 0);
    move();
    memory[0] = i * 100;
    ASSERT_EQ(send(10, 0).post(a), 0);
    completions(2);
    EXPECT_EQ(memory[i], i * 100);
  }
}

TEST_F(Move, NewObjectsGetNumbersThatNobodyHas) {
  std::set<std::uint32_t> qpns{a->qpn(), b->qpn()}, keys{mr->lkey() >> 8};
  std::vector<std::uint64_t> more(64);
  for (int i = 0; i < 3; ++i) {
    move();
    for (int j = 0; j < 4; ++j) {
      device::Qp* qp = create_qp();
      EXPECT_TRUE(qpns.insert(qp->qpn()).second);
      EXPECT_TRUE(keys.insert(reg(more.data(), 8)->lkey() >> 8).second);
    }
  }
  device::Qp* c = create_qp();
  device::Qp* d = create_qp();
  connect(c, d);
  ASSERT_EQ(receive(d, 1, 1), 0);
  memory[0] = 77;
  ASSERT_EQ(send(2, 0).post(c), 0);
  EXPECT_EQ(completions(2)[0].second, d->qpn());
  EXPECT_EQ(memory[1], 77u);
}

TEST_F(Move, ObjectsCanEndAfterwards) {
  move();
  EXPECT_EQ(context->destroy(pd), EBUSY);
  EXPECT_EQ(context->destroy(a), 0);
  EXPECT_EQ(context->destroy(b), 0);
  EXPECT_EQ(context->destroy(mr), 0);
  EXPECT_EQ(context->destroy(cq), 0);
  EXPECT_EQ(context->destroy(pd), 0);
}

TEST_F(Move, AQpIsMadeInTheStateThatItWasIn) {
  device::Qp* reset = create_qp();
  device::Qp* init = create_qp();
  r::to_init(init);
  ASSERT_EQ(receive(init, 5, 5), 0);
  device::Qp* failed = create_qp();
  device::Qp* other = create_qp();
  connect(failed, other);
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(failed->modify(error, IBV_QP_STATE), 0);
  move();
  EXPECT_EQ(reset->state(), IBV_QPS_RESET);
  EXPECT_EQ(init->state(), IBV_QPS_INIT);
  EXPECT_EQ(failed->state(), IBV_QPS_ERR);
  device::Qp* peer = create_qp();
  r::to_init(peer);
  r::to_rts(init, peer->qpn(), gid());
  r::to_rts(peer, init->qpn(), gid());
  memory[0] = 50;
  ASSERT_EQ(send(6, 0).post(peer), 0);
  completions(2);
  EXPECT_EQ(memory[5], 50u);
}

TEST_F(Move, EventsOfArmedQueuesComeAfterwards) {
  ASSERT_EQ(receive(b, 1, 1), 0);
  ASSERT_EQ(cq->arm(false), 0);
  park();
  unpark();
  EXPECT_EQ(sink.completions(), 0) << "the completions of a stop are not the application's";
  ASSERT_EQ(send(2, 0).post(a), 0);
  EXPECT_TRUE(r::eventually([&] { return sink.completions() == 1; }));
  completions(2);
}

TEST_F(Move, EventsOfKeptCompletionsAreRaised) {
  ASSERT_EQ(cq->arm(false), 0);
  ASSERT_EQ(send(2, 0).post(a), 0);
  std::thread program([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(receive(b, 1, 1), 0);
  });
  park();
  program.join();
  EXPECT_EQ(sink.completions(), 1);
  ASSERT_EQ(cq->arm(false), 0);
  unpark();
  EXPECT_EQ(sink.completions(), 1);
  completions(2);
}

TEST_F(Move, CallsOfTheProgramWaitWhileTheDeviceIsAway) {
  park();
  std::atomic<bool> done{false};
  std::thread program([&] {
    ibv_port_attr attributes{};
    EXPECT_EQ(context->query_port(1, &attributes), 0);
    device::Pd* another = nullptr;
    EXPECT_EQ(context->alloc_pd(&another), 0);
    done = true;
  });
  std::vector<device::QpStatus> all;
  context->status(&all);
  EXPECT_EQ(all.size(), 2u) << "ferry ps is answered";
  EXPECT_FALSE(done);
  unpark();
  program.join();
  EXPECT_TRUE(done);
}

// ferryd asks in a thread of its own.
TEST_F(Move, ObjectsComeAndGoWhileFerrydAsks) {
  std::atomic<bool> ends{false};
  std::thread agent([&] {
    while (!ends) {
      std::vector<device::QpStatus> all;
      context->status(&all);
      EXPECT_GE(all.size(), 2u);
      EXPECT_EQ(context->obstacle(), nullptr);
      EXPECT_NE(context->needs(), "");
    }
  });
  for (int i = 0; i < 300; ++i) {
    device::Srq* srq = create_srq(4);
    device::Qp* qp = create_qp({4, 0, 1, 0, 0}, IBV_QPT_RC, srq);
    ASSERT_EQ(context->destroy(srq), EBUSY) << "it has a QP, and stays";
    ASSERT_EQ(context->destroy(qp), 0);
    ASSERT_EQ(context->destroy(srq), 0);
  }
  ends = true;
  agent.join();
}

// ferryd asks whenever somebody looks for the peer of a letter, and waits for the agent's thread.
TEST_F(Move, WhatTheContextIsCanBeAskedInAStop) {
  const auto ask = [&] {
    std::vector<device::QpStatus> qps;
    context->status(&qps);
    EXPECT_EQ(qps.size(), 2u);
    EXPECT_EQ(context->obstacle(), nullptr);
    EXPECT_FALSE(context->needs().empty());
    EXPECT_TRUE(context->datagram_destinations().empty());
    EXPECT_TRUE(context->moved_datagram_qps().qpns.empty());
    EXPECT_FALSE(context->awaits_letters());
    std::vector<device::Counter> counters;
    context->counters(&counters);
    return counters.size();
  };
  const std::size_t counters = ask();
  EXPECT_GT(counters, 0u);
  ASSERT_EQ(quiesce(), 0);
  EXPECT_EQ(ask(), 0u);
  device::Parcel parcel;
  ASSERT_EQ(context->park(&parcel), 0);
  EXPECT_EQ(ask(), 0u);
  ASSERT_EQ(context->unpark(parcel), 0);
  EXPECT_EQ(ask(), 0u);
  context->resume(false);
  EXPECT_EQ(ask(), counters);
}

TEST_F(Move, APeerThatIsNotSuspendedRefusesTheStopAndTheProgramGoesOn) {
  // A peer that is elsewhere would have to be told.
  device::Qp* away = create_qp();
  r::to_init(away);
  ibv_gid elsewhere = gid();
  elsewhere.raw[15] = 77;
  r::to_rts(away, 0x12345, elsewhere);
  EXPECT_EQ(quiesce(), EBUSY);
  ASSERT_EQ(context->destroy(away), 0);
  ASSERT_EQ(receive(b, 1, 1), 0);
  ASSERT_EQ(send(2, 0).post(a), 0);
  completions(2);
}

// Threads post and poll without a pause while the device is left and entered.
TEST_F(Move, ThreadsOfTheProgramInTheMidst) {
  constexpr std::uint64_t kCount = 3000;
  std::thread sender([&] {
    for (std::uint64_t i = 0; i < kCount;) {
      if (send(1, 0, i % 8 == 0 ? IBV_SEND_SIGNALED : 0).post(a) == 0) ++i;
    }
  });
  std::thread receiver([&] {
    for (std::uint64_t i = 0; i < kCount;) {
      if (receive(b, 2, 1) == 0) ++i;
    }
  });
  std::uint64_t received = 0, sent = 0;
  std::thread poller([&] {
    ibv_wc wc[8];
    while (received < kCount || sent < kCount / 8) {
      const int count = cq->poll(8, wc);
      ASSERT_GE(count, 0);
      for (int i = 0; i < count; ++i) {
        ASSERT_EQ(wc[i].status, IBV_WC_SUCCESS);
        ++(wc[i].wr_id == 2 ? received : sent);
        EXPECT_EQ(wc[i].qp_num, wc[i].wr_id == 2 ? b->qpn() : a->qpn());
      }
    }
  });
  for (int i = 0; i < 10; ++i) {
    move();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  sender.join();
  receiver.join();
  poller.join();
  EXPECT_EQ(received, kCount);
  EXPECT_TRUE(nothing_more());
}

}  // namespace
}  // namespace ferry::virt::testing
