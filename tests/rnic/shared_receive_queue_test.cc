#include "sim_pair.h"

// Shared receive queues (IBTA vol. 1 clause 10.2.9). The receivers are QPs of b.
namespace ferry::rnic::testing {
namespace {

struct SrqTest : ::testing::Test, SimPair {
  std::vector<std::byte> ours = pattern(4000, 1);
  std::vector<std::byte> theirs = std::vector<std::byte>(64 * 1000);
  device::Mr* mr_a = nullptr;
  device::Mr* mr_b = nullptr;
  device::Srq* srq = nullptr;
  std::vector<device::Qp*> senders, receivers;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open());
    mr_a = a.reg(ours.data(), ours.size());
    mr_b = b.reg(theirs.data(), theirs.size());
    srq = b.create_srq();
    for (int i = 0; i < 3; ++i) {
      senders.push_back(a.create_qp());
      receivers.push_back(b.create_qp({64, 64, 4, 4, 64}, false, srq));
      to_init(senders.back());
      to_init(receivers.back());
      to_rts(senders.back(), receivers.back()->qpn(), b.gid());
      to_rts(receivers.back(), senders.back()->qpn(), a.gid());
    }
  }
  int receive(std::uint64_t id) {
    return post_receive(srq, id, theirs.data() + id * 1000, 1000, mr_b);
  }
  int send(unsigned from, std::uint64_t id) {
    return Send(IBV_WR_SEND, id, ours.data() + id, 100, mr_a).post(senders[from]);
  }
  ibv_srq_attr query() {
    ibv_srq_attr attributes{};
    EXPECT_EQ(srq->query(&attributes), 0);
    return attributes;
  }
  void fail(device::Qp* qp) {
    ASSERT_EQ(qp->modify(attributes(IBV_QPS_ERR, 0, {}), IBV_QP_STATE), 0);
  }
};

TEST_F(SrqTest, QpsTakeWqesInTheOrderTheirMessagesCome) {
  for (std::uint64_t id = 0; id < 6; ++id) ASSERT_EQ(receive(id), 0);
  for (std::uint64_t id = 0; id < 6; ++id) {
    ASSERT_EQ(send(id % 3, id), 0);
    run();
  }
  const auto completions = drain(b.cq);
  ASSERT_EQ(completions.size(), 6u);
  for (std::uint64_t id = 0; id < 6; ++id) {
    EXPECT_EQ(completions[id].wr_id, id);
    EXPECT_EQ(completions[id].qp_num, receivers[id % 3]->qpn());
    EXPECT_EQ(std::memcmp(theirs.data() + id * 1000, ours.data() + id, 100), 0);
  }
}

TEST_F(SrqTest, EmptyQueueIsRnr) {
  ASSERT_EQ(send(0, 1), 0);
  run();
  EXPECT_TRUE(drain(a.cq).empty());
  ASSERT_EQ(receive(7), 0);
  run(std::chrono::milliseconds(20));
  EXPECT_EQ(drain(a.cq).size(), 1u);
  ASSERT_EQ(drain(b.cq).at(0).wr_id, 7u);
}

TEST_F(SrqTest, QpsOfItHaveNoReceiveQueue) {
  EXPECT_EQ(post_receive(receivers[0], 1, theirs.data(), 10, mr_b), EINVAL);
  ibv_qp_attr got{};
  ASSERT_EQ(receivers[0]->query(&got), 0);
  EXPECT_EQ(got.cap.max_recv_wr, 0u);
}

TEST_F(SrqTest, PostingUpToTheLimits) {
  const ibv_srq_attr granted = query();
  for (std::uint64_t id = 0; id < granted.max_wr; ++id) ASSERT_EQ(receive(id), 0);
  EXPECT_EQ(receive(60), ENOMEM);
  std::vector<ibv_sge> sges(granted.max_sge + 1,
                            {reinterpret_cast<std::uintptr_t>(theirs.data()), 1, mr_b->lkey()});
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  EXPECT_EQ(srq->post_recv(&wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  ASSERT_EQ(send(0, 0), 0);
  run();
  --wr.num_sge;
  EXPECT_EQ(srq->post_recv(&wr, &bad), 0);
}

TEST_F(SrqTest, LimitsOfTheDevice) {
  ibv_device_attr_ex reported{};
  ASSERT_EQ(b.context->query_device(&reported), 0);
  const auto creates = [&](std::uint32_t max_wr, std::uint32_t max_sge) {
    device::SrqInit init;
    init.pd = b.pd;
    init.attributes = {max_wr, max_sge, 0};
    device::Srq* made = nullptr;
    const int error = b.context->create_srq(&init, &made);
    if (error == 0) {
      EXPECT_GE(init.attributes.max_wr, max_wr);
      EXPECT_GE(init.attributes.max_sge, max_sge);
      EXPECT_EQ(b.context->destroy(made), 0);
    }
    return error;
  };
  const auto wr = static_cast<std::uint32_t>(reported.orig_attr.max_srq_wr);
  const auto sge = static_cast<std::uint32_t>(reported.orig_attr.max_srq_sge);
  EXPECT_EQ(creates(wr, sge), 0);
  EXPECT_EQ(creates(1, 0), 0);
  EXPECT_EQ(creates(wr + 1, 1), EINVAL);
  EXPECT_EQ(creates(1, sge + 1), EINVAL);
  EXPECT_EQ(creates(0, 1), EINVAL);
}

// Clause 10.2.9.3.
TEST_F(SrqTest, LimitEventComesOnceWhenFewerAreLeft) {
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(receive(id), 0);
  ASSERT_EQ(srq->modify({0, 0, 3}, IBV_SRQ_LIMIT), 0);
  EXPECT_EQ(query().srq_limit, 3u);
  ASSERT_EQ(send(0, 0), 0);
  run();
  EXPECT_EQ(b.sink.count(IBV_EVENT_SRQ_LIMIT_REACHED, srq), 0u) << "three are left";
  ASSERT_EQ(send(1, 1), 0);
  run();
  EXPECT_EQ(b.sink.count(IBV_EVENT_SRQ_LIMIT_REACHED, srq), 1u);
  EXPECT_EQ(query().srq_limit, 0u);
  ASSERT_EQ(send(2, 2), 0);
  run();
  EXPECT_EQ(b.sink.count(IBV_EVENT_SRQ_LIMIT_REACHED, srq), 1u);
  // Armed when there are fewer already.
  ASSERT_EQ(srq->modify({0, 0, 2}, IBV_SRQ_LIMIT), 0);
  EXPECT_EQ(b.sink.count(IBV_EVENT_SRQ_LIMIT_REACHED, srq), 2u);
  const std::uint32_t max_wr = query().max_wr;
  EXPECT_EQ(srq->modify({0, 0, max_wr + 1}, IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(srq->modify({0, 0, max_wr}, IBV_SRQ_LIMIT), 0);
}

TEST_F(SrqTest, ResizeKeepsWhatIsInIt) {
  for (std::uint64_t id = 0; id < 3; ++id) ASSERT_EQ(receive(id), 0);
  EXPECT_EQ(srq->modify({2, 0, 0}, IBV_SRQ_MAX_WR), EINVAL);
  EXPECT_EQ(srq->modify({0, 0, 0}, IBV_SRQ_MAX_WR), EINVAL);
  EXPECT_EQ(srq->modify({SharedReceiveQueue::kMaxWr + 1, 0, 0}, IBV_SRQ_MAX_WR), EINVAL);
  ASSERT_EQ(srq->modify({4, 0, 0}, IBV_SRQ_MAX_WR), 0);
  ASSERT_EQ(receive(3), 0);
  EXPECT_EQ(receive(4), ENOMEM);
  ASSERT_EQ(srq->modify({40, 0, 0}, IBV_SRQ_MAX_WR), 0);
  EXPECT_GE(query().max_wr, 40u);
  ASSERT_EQ(receive(4), 0);
  for (std::uint64_t id = 0; id < 5; ++id) {
    ASSERT_EQ(send(0, id), 0);
    run();
  }
  const auto completions = drain(b.cq);
  ASSERT_EQ(completions.size(), 5u);
  for (std::uint64_t id = 0; id < 5; ++id) EXPECT_EQ(completions[id].wr_id, id);
}

TEST_F(SrqTest, AFailedQpLeavesTheQueueToTheOthers) {
  for (std::uint64_t id = 0; id < 2; ++id) ASSERT_EQ(receive(id), 0);
  ASSERT_NO_FATAL_FAILURE(fail(receivers[0]));
  EXPECT_TRUE(drain(b.cq).empty());
  EXPECT_EQ(b.sink.count(IBV_EVENT_QP_LAST_WQE_REACHED, receivers[0]), 1u);
  EXPECT_EQ(b.sink.count(IBV_EVENT_QP_LAST_WQE_REACHED, receivers[1]), 0u);
  ASSERT_EQ(send(1, 0), 0);
  run();
  EXPECT_EQ(drain(b.cq).at(0).wr_id, 0u);
}

// A QP that fails in the middle of a message had a WQE of its own by then.
TEST_F(SrqTest, AWqeThatWasTakenIsFlushed) {
  ASSERT_EQ(receive(0), 0);
  unsigned packets = 0;
  network.set_filter([&](const auto&, const auto& to, auto) {
    return to != b.context->engine().lanes()[0].port->local() || ++packets <= 1;
  });
  ASSERT_EQ(Send(IBV_WR_SEND, 1, ours.data(), 1000, mr_a).post(senders[0]), 0);
  run();
  network.set_filter({});
  // 1000 bytes fit one packet of this MTU; a message of two is cut by the filter.
  ASSERT_EQ(drain(b.cq).size(), 1u);
  ASSERT_EQ(post_receive(srq, 5, theirs.data(), 3000, mr_b), 0);
  packets = 0;
  network.set_filter([&](const auto&, const auto& to, auto) {
    return to != b.context->engine().lanes()[0].port->local() || ++packets <= 1;
  });
  ASSERT_EQ(Send(IBV_WR_SEND, 2, ours.data(), 3000, mr_a).post(senders[0]), 0);
  run(std::chrono::microseconds(200));
  ASSERT_NO_FATAL_FAILURE(fail(receivers[0]));
  const auto completions = drain(b.cq);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].wr_id, 5u);
  EXPECT_EQ(completions[0].status, IBV_WC_WR_FLUSH_ERR);
}

// The lkeys of a WQE belong to the PD of the queue that it was posted to.
TEST_F(SrqTest, ThePdOfTheQueueCounts) {
  device::Pd* other = nullptr;
  ASSERT_EQ(b.context->alloc_pd(&other), 0);
  device::SrqInit init;
  init.pd = other;
  init.attributes = {4, 1, 0};
  device::Srq* foreign = nullptr;
  ASSERT_EQ(b.context->create_srq(&init, &foreign), 0);
  device::MrInit region{other, theirs.data(), 100, reinterpret_cast<std::uintptr_t>(theirs.data()),
                        IBV_ACCESS_LOCAL_WRITE};
  device::Mr* mr = nullptr;
  ASSERT_EQ(b.context->reg_mr(region, &mr), 0);
  const auto connect_to = [&](device::Srq* queue) {
    qp_a = a.create_qp();
    qp_b = b.create_qp({64, 64, 4, 4, 64}, false, queue);
    to_init(qp_a);
    to_init(qp_b);
    to_rts(qp_a, qp_b->qpn(), b.gid());
    to_rts(qp_b, qp_a->qpn(), a.gid());
  };
  connect_to(foreign);
  ASSERT_EQ(post_receive(foreign, 1, theirs.data(), 100, mr), 0);
  ASSERT_EQ(Send(IBV_WR_SEND, 1, ours.data(), 100, mr_a).post(qp_a), 0);
  run();
  EXPECT_EQ(drain(b.cq).at(0).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(theirs.data(), ours.data(), 100), 0);
  drain(a.cq);
  // The key of the QP's own PD is a foreign one there.
  const auto before = theirs;
  ASSERT_EQ(post_receive(foreign, 2, theirs.data(), 100, mr_b), 0);
  ASSERT_EQ(Send(IBV_WR_SEND, 2, ours.data() + 50, 100, mr_a).post(qp_a), 0);
  run();
  EXPECT_EQ(drain(b.cq).at(0).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(drain(a.cq).at(0).status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(theirs, before);
}

TEST_F(SrqTest, BusyWhileQpsUseIt) {
  EXPECT_EQ(b.context->destroy(srq), EBUSY);
  for (device::Qp* qp : receivers) EXPECT_EQ(b.context->destroy(qp), 0);
  EXPECT_EQ(b.context->destroy(srq), 0);
}

TEST_F(SrqTest, SixtyFourQpsOnOneQueue) {
  device::Srq* wide = b.create_srq(256);
  std::vector<device::Qp*> many;
  for (int i = 0; i < 64; ++i) {
    device::Qp* from = a.create_qp();
    device::Qp* to = b.create_qp({4, 4, 1, 1, 0}, false, wide);
    to_init(from);
    to_init(to);
    to_rts(from, to->qpn(), b.gid());
    to_rts(to, from->qpn(), a.gid());
    many.push_back(from);
  }
  for (std::uint64_t id = 0; id < 256; ++id) {
    ASSERT_EQ(post_receive(wide, id, theirs.data(), 64, mr_b), 0);
  }
  for (int round = 0; round < 4; ++round) {
    for (device::Qp* qp : many) {
      ASSERT_EQ(Send(IBV_WR_SEND, 1, ours.data(), 64, mr_a).post(qp), 0);
    }
  }
  run(std::chrono::milliseconds(100));
  std::set<std::uint64_t> ids;
  for (const ibv_wc& wc : drain(b.cq)) {
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    ids.insert(wc.wr_id);
  }
  EXPECT_EQ(ids.size(), 256u);
}

}  // namespace
}  // namespace ferry::rnic::testing
