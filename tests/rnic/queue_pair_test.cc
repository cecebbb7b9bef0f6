#include "sim_pair.h"

namespace ferry::rnic::testing {
namespace {

struct QueuePairTest : ::testing::Test, SimPair {
  std::vector<std::byte> ours = pattern(20'000, 1);
  std::vector<std::byte> theirs = std::vector<std::byte>(20'000);
  device::Mr* mr_a = nullptr;
  device::Mr* mr_b = nullptr;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open());
    ASSERT_NO_FATAL_FAILURE(connect());
    mr_a = a.reg(ours.data(), ours.size());
    mr_b = b.reg(theirs.data(), theirs.size());
  }
  void expect_status(device::Cq* cq, ibv_wc_status status) {
    run();
    const auto completions = drain(cq);
    ASSERT_EQ(completions.size(), 1u);
    EXPECT_EQ(completions[0].status, status);
  }
};

TEST_F(QueuePairTest, SendWithScatterAndGather) {
  ibv_sge from[3] = {{reinterpret_cast<std::uintptr_t>(ours.data()), 1000, mr_a->lkey()},
                     {0, 0, 0},
                     {reinterpret_cast<std::uintptr_t>(ours.data()) + 5000, 3000, mr_a->lkey()}};
  ibv_sge to[2] = {{reinterpret_cast<std::uintptr_t>(theirs.data()), 500, mr_b->lkey()},
                   {reinterpret_cast<std::uintptr_t>(theirs.data()) + 9000, 4000, mr_b->lkey()}};
  ibv_recv_wr receive{};
  receive.sg_list = to;
  receive.num_sge = 2;
  ibv_recv_wr* bad_receive;
  ASSERT_EQ(qp_b->post_recv(&receive, &bad_receive), 0);
  ibv_send_wr send{};
  send.sg_list = from;
  send.num_sge = 3;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad;
  ASSERT_EQ(qp_a->post_send(&send, &bad), 0);
  run();
  const auto completions = drain(b.cq);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].byte_len, 4000u);
  std::vector<std::byte> sent(ours.begin(), ours.begin() + 1000);
  sent.insert(sent.end(), ours.begin() + 5000, ours.begin() + 8000);
  EXPECT_TRUE(std::equal(sent.begin(), sent.begin() + 500, theirs.begin()));
  EXPECT_TRUE(std::equal(sent.begin() + 500, sent.end(), theirs.begin() + 9000));
}

TEST_F(QueuePairTest, InlineDataIsCopiedWhenPosted) {
  ASSERT_EQ(post_receive(qp_b, 1, theirs.data(), 100, mr_b), 0);
  char text[] = "inline data";
  ASSERT_EQ(Send(IBV_WR_SEND, 1, text, sizeof text, nullptr, IBV_SEND_INLINE | IBV_SEND_SIGNALED)
                .post(qp_a),
            0);
  std::memset(text, 'x', sizeof text);
  run();
  EXPECT_EQ(std::memcmp(theirs.data(), "inline data", 12), 0);
  EXPECT_EQ(drain(a.cq).size(), 1u);
}

TEST_F(QueuePairTest, OnlySignalledRequestsComplete) {
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, i, ours.data(), 100, mr_a, i == 3 ? IBV_SEND_SIGNALED : 0)
                  .remote(theirs.data(), mr_b->rkey())
                  .post(qp_a),
              0);
  }
  run();
  const auto completions = drain(a.cq);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].wr_id, 3u);
}

TEST_F(QueuePairTest, SignalAllSignalsAll) {
  ASSERT_NO_FATAL_FAILURE(connect({8, 8, 1, 1, 0}, true));
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, i, ours.data(), 10, mr_a, 0)
                  .remote(theirs.data(), mr_b->rkey())
                  .post(qp_a),
              0);
  }
  run();
  EXPECT_EQ(drain(a.cq).size(), 3u);
}

TEST_F(QueuePairTest, RightsAndKeys) {
  // Each case ruins its QP, hence a new one.
  device::Mr* read_only =
      b.reg(theirs.data(), 100, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  device::Mr* write_only =
      b.reg(theirs.data(), 100, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  struct Case {
    const char* name;
    ibv_wr_opcode opcode;
    std::uint32_t rkey;
    const void* address;
    std::uint32_t length;
  };
  const Case cases[] = {
      {"write without right", IBV_WR_RDMA_WRITE, read_only->rkey(), theirs.data(), 10},
      {"read without right", IBV_WR_RDMA_READ, write_only->rkey(), theirs.data(), 10},
      {"wrong key", IBV_WR_RDMA_WRITE, mr_b->rkey() ^ 1, theirs.data(), 10},
      {"wrong key, read", IBV_WR_RDMA_READ, mr_b->rkey() ^ 0x100, theirs.data(), 10},
      {"behind the end", IBV_WR_RDMA_WRITE, write_only->rkey(), theirs.data() + 95, 10},
      {"before the start", IBV_WR_RDMA_READ, read_only->rkey(), theirs.data() - 1, 10},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ASSERT_NO_FATAL_FAILURE(connect());
    const auto before = theirs;
    ASSERT_EQ(Send(c.opcode, 1, ours.data(), c.length, mr_a).remote(c.address, c.rkey).post(qp_a),
              0);
    expect_status(a.cq, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(theirs, before);
    EXPECT_EQ(qp_a->state(), IBV_QPS_ERR);
    EXPECT_EQ(qp_b->state(), IBV_QPS_ERR);
    EXPECT_TRUE(b.sink.saw(IBV_EVENT_QP_ACCESS_ERR, qp_b));
  }
}

TEST_F(QueuePairTest, RightsOfTheQpCountToo) {
  ibv_qp_attr attributes{};
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  ASSERT_EQ(qp_b->modify(attributes, IBV_QP_ACCESS_FLAGS), 0);
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, ours.data(), 10, mr_a)
                .remote(theirs.data(), mr_b->rkey())
                .post(qp_a),
            0);
  expect_status(a.cq, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(QueuePairTest, OtherProtectionDomain) {
  device::Pd* other = nullptr;
  ASSERT_EQ(b.context->alloc_pd(&other), 0);
  device::MrInit init{other, theirs.data(), 100, reinterpret_cast<std::uintptr_t>(theirs.data()),
                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
  device::Mr* mr = nullptr;
  ASSERT_EQ(b.context->reg_mr(init, &mr), 0);
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, ours.data(), 10, mr_a)
                .remote(theirs.data(), mr->rkey())
                .post(qp_a),
            0);
  expect_status(a.cq, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(QueuePairTest, LocalKeyErrors) {
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, ours.data() + 19'990, 100, mr_a)  // out of the MR
                .remote(theirs.data(), mr_b->rkey())
                .post(qp_a),
            0);
  expect_status(a.cq, IBV_WC_LOC_PROT_ERR);
  ASSERT_NO_FATAL_FAILURE(connect());
  device::Mr* read_only = b.reg(theirs.data(), 100, 0);
  ASSERT_EQ(post_receive(qp_b, 1, theirs.data(), 100, read_only), 0);
  ASSERT_EQ(Send(IBV_WR_SEND, 2, ours.data(), 10, mr_a).post(qp_a), 0);
  run();
  const auto at_b = drain(b.cq);
  ASSERT_EQ(at_b.size(), 1u);
  EXPECT_EQ(at_b[0].status, IBV_WC_LOC_PROT_ERR);
  const auto at_a = drain(a.cq);
  ASSERT_EQ(at_a.size(), 1u);
  EXPECT_EQ(at_a[0].status, IBV_WC_REM_OP_ERR);
}

TEST_F(QueuePairTest, MessageLongerThanTheReceive) {
  ASSERT_EQ(post_receive(qp_b, 1, theirs.data(), 10, mr_b), 0);
  ASSERT_EQ(Send(IBV_WR_SEND, 2, ours.data(), 11, mr_a).post(qp_a), 0);
  run();
  ASSERT_EQ(drain(b.cq).at(0).status, IBV_WC_LOC_LEN_ERR);
  ASSERT_EQ(drain(a.cq).at(0).status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(QueuePairTest, PostingErrors) {
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(Send(IBV_WR_TSO, 1, ours.data(), 8, mr_a).post(qp_a), EOPNOTSUPP);
  EXPECT_EQ(Send(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, ours.data(), 7, mr_a).post(qp_a), EINVAL);
  EXPECT_EQ(Send(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, ours.data(), 8, mr_a, IBV_SEND_INLINE).post(qp_a),
            EINVAL);
  EXPECT_EQ(Send(IBV_WR_ATOMIC_WRITE, 1, ours.data(), 9, mr_a).post(qp_a), EINVAL);
  Send unknown(IBV_WR_SEND, 1, ours.data(), 8, mr_a);
  const int opcode = 99;
  std::memcpy(&unknown.wr.opcode, &opcode, sizeof opcode);
  EXPECT_EQ(unknown.post(qp_a), EINVAL);
  EXPECT_EQ(Send(IBV_WR_RDMA_READ, 1, ours.data(), 8, mr_a, IBV_SEND_INLINE).post(qp_a), EINVAL);
  EXPECT_EQ(Send(IBV_WR_SEND, 1, ours.data(), 8, mr_a, IBV_SEND_IP_CSUM).post(qp_a), EINVAL);
  EXPECT_EQ(Send(IBV_WR_SEND, 1, ours.data(), 65, mr_a, IBV_SEND_INLINE).post(qp_a), EINVAL);
  std::vector<ibv_sge> many(5, {reinterpret_cast<std::uintptr_t>(ours.data()), 1, mr_a->lkey()});
  ibv_send_wr send{};
  send.sg_list = many.data();
  send.num_sge = 5;
  send.opcode = IBV_WR_SEND;
  EXPECT_EQ(qp_a->post_send(&send, &bad), EINVAL);
  send.num_sge = -1;
  EXPECT_EQ(qp_a->post_send(&send, &bad), EINVAL);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  receive.sg_list = many.data();
  receive.num_sge = 5;
  EXPECT_EQ(qp_a->post_recv(&receive, &bad_receive), EINVAL);
  EXPECT_EQ(bad_receive, &receive);
}

TEST_F(QueuePairTest, FullQueues) {
  ASSERT_NO_FATAL_FAILURE(connect({4, 4, 1, 1, 0}));
  // Nobody posts a receive at b, so requests stay.
  for (int i = 0; i < 4; ++i) ASSERT_EQ(Send(IBV_WR_SEND, i, ours.data(), 1, mr_a).post(qp_a), 0);
  EXPECT_EQ(Send(IBV_WR_SEND, 4, ours.data(), 1, mr_a).post(qp_a), ENOMEM);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(post_receive(qp_a, i, ours.data(), 1, mr_a), 0);
  EXPECT_EQ(post_receive(qp_a, 4, ours.data(), 1, mr_a), ENOMEM);
}

TEST_F(QueuePairTest, ListsStopAtTheFirstBadRequest) {
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(ours.data()), 1, mr_a->lkey()};
  ibv_send_wr list[3]{};
  for (int i = 0; i < 3; ++i) {
    list[i].wr_id = static_cast<std::uint64_t>(i);
    list[i].next = i < 2 ? &list[i + 1] : nullptr;
    list[i].sg_list = &sge;
    list[i].num_sge = 1;
    list[i].opcode = i == 1 ? IBV_WR_TSO : IBV_WR_RDMA_WRITE;
    list[i].send_flags = IBV_SEND_SIGNALED;
    list[i].wr.rdma = {reinterpret_cast<std::uintptr_t>(theirs.data()), mr_b->rkey()};
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(qp_a->post_send(list, &bad), EOPNOTSUPP);
  EXPECT_EQ(bad, &list[1]);
  run();
  const auto completions = drain(a.cq);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].wr_id, 0u);
}

TEST_F(QueuePairTest, AllOrNothingOfAList) {
  ASSERT_NO_FATAL_FAILURE(connect({4, 4, 1, 1, 0}));
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(ours.data()), 1, mr_a->lkey()};
  ibv_send_wr list[5]{};
  for (int i = 0; i < 5; ++i) {
    list[i].wr_id = static_cast<std::uint64_t>(i);
    list[i].next = i < 4 ? &list[i + 1] : nullptr;
    list[i].opcode = IBV_WR_SEND;
    list[i].send_flags = IBV_SEND_SIGNALED;
    list[i].sg_list = &sge;
    list[i].num_sge = 1;
  }
  EXPECT_EQ(qp_a->post_all(list), ENOMEM);  // five into four
  list[3].next = nullptr;
  list[3].num_sge = -1;
  EXPECT_EQ(qp_a->post_all(list), EINVAL);
  list[3].num_sge = 1;
  EXPECT_EQ(qp_a->post_all(list), 0);  // nothing had been left
  for (int i = 0; i < 4; ++i) ASSERT_EQ(post_receive(qp_b, i, theirs.data(), 1, mr_b), 0);
  run();
  auto completions = drain(a.cq);
  ASSERT_EQ(completions.size(), 4u);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(completions[i].wr_id, i);
  // Nor does a QP in error complete a part.
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(qp_a->modify(error, IBV_QP_STATE), 0);
  list[3].num_sge = -1;
  EXPECT_EQ(qp_a->post_all(list), EINVAL);
  list[3].num_sge = 1;
  EXPECT_EQ(qp_a->post_all(list), 0);
  completions = drain(a.cq);
  ASSERT_EQ(completions.size(), 4u);
  for (const ibv_wc& wc : completions) EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(QueuePairTest, StatesInWhichPostingIsWrong) {
  device::Qp* qp = a.create_qp();
  EXPECT_EQ(Send(IBV_WR_SEND, 1, ours.data(), 1, mr_a).post(qp), EINVAL);
  EXPECT_EQ(post_receive(qp, 1, ours.data(), 1, mr_a), EINVAL);
  to_init(qp);
  EXPECT_EQ(Send(IBV_WR_SEND, 1, ours.data(), 1, mr_a).post(qp), EINVAL);
  EXPECT_EQ(post_receive(qp, 1, ours.data(), 1, mr_a), 0);
  ASSERT_EQ(qp->modify(attributes(IBV_QPS_RTR, qp_b->qpn(), b.gid()), kRtrMask), 0);
  EXPECT_EQ(Send(IBV_WR_SEND, 1, ours.data(), 1, mr_a).post(qp), EINVAL);
}

TEST_F(QueuePairTest, ErrorStateFlushesWhatIsPostedAndWhatFollows) {
  ASSERT_EQ(post_receive(qp_a, 10, ours.data(), 1, mr_a), 0);
  ASSERT_EQ(Send(IBV_WR_SEND, 11, ours.data(), 1, mr_a, 0).post(qp_a), 0);
  ASSERT_EQ(qp_a->modify(attributes(IBV_QPS_ERR, 0, {}), IBV_QP_STATE), 0);
  ASSERT_EQ(post_receive(qp_a, 12, ours.data(), 1, mr_a), 0);
  ASSERT_EQ(Send(IBV_WR_SEND, 13, ours.data(), 1, mr_a, 0).post(qp_a), 0);
  auto completions = drain(a.cq);
  ASSERT_EQ(completions.size(), 4u);
  std::sort(completions.begin(), completions.end(),
            [](const ibv_wc& x, const ibv_wc& y) { return x.wr_id < y.wr_id; });
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(completions[i].wr_id, 10u + i);
    EXPECT_EQ(completions[i].status, IBV_WC_WR_FLUSH_ERR);
  }
}

TEST_F(QueuePairTest, ResetForgetsAndCanStartAgain) {
  ASSERT_EQ(post_receive(qp_a, 1, ours.data(), 1, mr_a), 0);
  ASSERT_EQ(Send(IBV_WR_SEND, 2, ours.data(), 1, mr_a).post(qp_a), 0);
  ASSERT_EQ(qp_a->modify(attributes(IBV_QPS_ERR, 0, {}), IBV_QP_STATE), 0);
  ASSERT_EQ(qp_a->modify(attributes(IBV_QPS_RESET, 0, {}), IBV_QP_STATE), 0);
  EXPECT_TRUE(drain(a.cq).empty());
  ASSERT_EQ(qp_b->modify(attributes(IBV_QPS_RESET, 0, {}), IBV_QP_STATE), 0);
  to_init(qp_a);
  to_init(qp_b);
  ASSERT_NO_FATAL_FAILURE(to_rts(qp_a, qp_b->qpn(), b.gid()));
  ASSERT_NO_FATAL_FAILURE(to_rts(qp_b, qp_a->qpn(), a.gid()));
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 3, ours.data(), 5000, mr_a)
                .remote(theirs.data(), mr_b->rkey())
                .post(qp_a),
            0);
  expect_status(a.cq, IBV_WC_SUCCESS);
}

TEST_F(QueuePairTest, QueryTellsWhatWasSet) {
  ibv_qp_attr got{};
  ASSERT_EQ(qp_a->query(&got), 0);
  EXPECT_EQ(got.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(got.dest_qp_num, qp_b->qpn());
  EXPECT_EQ(got.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(got.timeout, 18);
  EXPECT_EQ(got.retry_cnt, 7);
  EXPECT_EQ(got.max_rd_atomic, 4);
  EXPECT_EQ(got.sq_psn, 0xFFFFF0u);
  EXPECT_EQ(got.cap.max_send_wr, 64u);
  EXPECT_EQ(got.qp_access_flags,
            static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
}

TEST_F(QueuePairTest, SqdDrainsAndChangesTimers) {
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, ours.data(), 100, mr_a)
                .remote(theirs.data(), mr_b->rkey())
                .post(qp_a),
            0);
  ASSERT_EQ(qp_a->modify(attributes(IBV_QPS_SQD, 0, {}), IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
            0);
  run();
  EXPECT_TRUE(a.sink.saw(IBV_EVENT_SQ_DRAINED, qp_a));
  EXPECT_EQ(drain(a.cq).size(), 1u);
  ibv_qp_attr change = attributes(IBV_QPS_SQD, 0, b.gid());
  change.timeout = 9;
  change.retry_cnt = 3;
  ASSERT_EQ(qp_a->modify(change, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT), 0);
  // Requests wait until it is back.
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 2, ours.data(), 100, mr_a)
                .remote(theirs.data(), mr_b->rkey())
                .post(qp_a),
            0);
  run();
  EXPECT_TRUE(drain(a.cq).empty());
  ASSERT_EQ(qp_a->modify(attributes(IBV_QPS_RTS, 0, {}), IBV_QP_STATE), 0);
  expect_status(a.cq, IBV_WC_SUCCESS);
  ibv_qp_attr got{};
  ASSERT_EQ(qp_a->query(&got), 0);
  EXPECT_EQ(got.timeout, 9);
  EXPECT_EQ(got.retry_cnt, 3);
}

TEST_F(QueuePairTest, PeerThatVanishedIsReportedAfterItsRetries) {
  ibv_qp_attr change = attributes(IBV_QPS_SQD, 0, b.gid());
  ASSERT_EQ(qp_a->modify(change, IBV_QP_STATE), 0);
  change.timeout = 10;  // 4.2 ms
  change.retry_cnt = 2;
  ASSERT_EQ(qp_a->modify(change, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT), 0);
  ASSERT_EQ(qp_a->modify(attributes(IBV_QPS_RTS, 0, {}), IBV_QP_STATE), 0);
  run();
  network.set_filter([](const auto&, const auto&, auto) { return false; });
  const transport::Time start = network.now();
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, ours.data(), 100, mr_a)
                .remote(theirs.data(), mr_b->rkey())
                .post(qp_a),
            0);
  std::vector<ibv_wc> completions;
  while (completions.empty() && network.now() < start + std::chrono::seconds(2)) {
    run(std::chrono::milliseconds(1));
    completions = drain(a.cq);
  }
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(network.now() - start, 3 * std::chrono::microseconds(4194));
}

TEST_F(QueuePairTest, ANullMrGivesZerosAndTakesAnything) {
  device::Mr* null_mr = nullptr;
  ASSERT_EQ(a.context->alloc_null_mr(a.pd, &null_mr), 0);
  EXPECT_EQ(null_mr->rkey(), 0u);
  EXPECT_EQ(a.context->alloc_null_mr(nullptr, &null_mr), EINVAL);
  // From anywhere, of any length.
  const auto anywhere = reinterpret_cast<const void*>(~std::uintptr_t{0} - 7);
  std::fill(theirs.begin(), theirs.end(), std::byte{1});
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, anywhere, 8, null_mr)
                .remote(theirs.data(), mr_b->rkey())
                .post(qp_a),
            0);
  run();
  expect_status(a.cq, IBV_WC_SUCCESS);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(static_cast<int>(theirs[i]), 0) << i;
  EXPECT_EQ(static_cast<int>(theirs[8]), 1);
  ASSERT_EQ(Send(IBV_WR_RDMA_READ, 2, nullptr, 100, null_mr)
                .remote(theirs.data(), mr_b->rkey())
                .post(qp_a),
            0);
  run();
  expect_status(a.cq, IBV_WC_SUCCESS);
  // It has no key that a peer could use, and is of its PD alone.
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 3, theirs.data(), 8, mr_b)
                .remote(nullptr, null_mr->lkey())
                .post(qp_b),
            0);
  run();
  expect_status(b.cq, IBV_WC_REM_ACCESS_ERR);
  device::MrInit init;
  EXPECT_EQ(a.context->rereg_mr(null_mr, IBV_REREG_MR_CHANGE_ACCESS, init), EINVAL);
  EXPECT_EQ(a.context->destroy(null_mr), 0);
}

TEST_F(QueuePairTest, FamilyOfThePeerMustBeTheGids) {
  device::Qp* qp = a.create_qp();
  to_init(qp);
  ibv_gid ipv6{};
  ipv6.raw[0] = 0xFD;
  ipv6.raw[15] = 1;
  EXPECT_EQ(qp->modify(attributes(IBV_QPS_RTR, 5, ipv6), kRtrMask), EINVAL);
  EXPECT_EQ(qp->state(), IBV_QPS_INIT);
}

TEST_F(QueuePairTest, LimitsAreThoseReported) {
  ibv_device_attr_ex attributes{};
  ASSERT_EQ(a.context->query_device(&attributes), 0);
  const auto creates = [&](const ibv_qp_cap& cap) {
    device::QpInit init;
    init.pd = a.pd;
    init.send_cq = init.recv_cq = a.cq;
    init.cap = cap;
    device::Qp* qp = nullptr;
    const int result = a.context->create_qp(&init, &qp);
    if (result == 0) {
      EXPECT_GE(init.cap.max_send_wr, cap.max_send_wr);
      EXPECT_GE(init.cap.max_recv_wr, cap.max_recv_wr);
      EXPECT_GE(init.cap.max_inline_data, 64u);  // some programs do not ask, and post inline
      EXPECT_EQ(a.context->destroy(qp), 0);
    }
    return result;
  };
  const auto wr = static_cast<std::uint32_t>(attributes.orig_attr.max_qp_wr);
  const auto sge = static_cast<std::uint32_t>(attributes.orig_attr.max_sge);
  EXPECT_EQ(creates({wr, wr, sge, sge, 0}), 0);
  EXPECT_EQ(creates({0, 0, 0, 0, 0}), 0);
  EXPECT_EQ(creates({wr + 1, 1, 1, 1, 0}), EINVAL);
  EXPECT_EQ(creates({1, wr + 1, 1, 1, 0}), EINVAL);
  EXPECT_EQ(creates({1, 1, sge + 1, 1, 0}), EINVAL);
  EXPECT_EQ(creates({1, 1, 1, sge + 1, 0}), EINVAL);
  EXPECT_EQ(creates({1, 1, 1, 1, 1025}), EINVAL);
}

TEST_F(QueuePairTest, ObjectsInUseAreBusy) {
  EXPECT_EQ(a.context->destroy(a.pd), EBUSY);
  EXPECT_EQ(a.context->destroy(a.cq), EBUSY);
  EXPECT_EQ(a.context->destroy(mr_a), 0);
  EXPECT_EQ(a.context->destroy(qp_a), 0);
  EXPECT_EQ(a.context->destroy(a.cq), 0);
  EXPECT_EQ(a.context->destroy(a.pd), 0);
}

TEST_F(QueuePairTest, OtherTypesAreNotSupported) {
  for (ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER}) {
    device::QpInit init;
    init.pd = a.pd;
    init.send_cq = init.recv_cq = a.cq;
    init.type = type;
    device::Qp* qp = nullptr;
    EXPECT_EQ(a.context->create_qp(&init, &qp), EOPNOTSUPP);
  }
}

TEST_F(QueuePairTest, QpnsAreHandedOutInTurn) {
  const std::uint32_t first = qp_a->qpn();
  EXPECT_EQ(a.context->destroy(qp_a), 0);
  for (int i = 0; i < 20; ++i) {
    device::Qp* qp = a.create_qp();
    EXPECT_NE(qp->qpn(), first);
    EXPECT_GE(port::index_of(qp->qpn()), port::kReservedIndices);
    EXPECT_EQ(a.context->destroy(qp), 0);
  }
}

// Two hundred QPs share the link and the window; all of them get their turn.
TEST_F(QueuePairTest, ManyQpsShareTheWindow) {
  std::vector<std::pair<device::Qp*, device::Qp*>> pairs;
  for (int i = 0; i < 200; ++i) {
    ASSERT_NO_FATAL_FAILURE(connect());
    pairs.emplace_back(qp_a, qp_b);
  }
  for (auto& [x, y] : pairs) {
    for (int k = 0; k < 3; ++k) {
      ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, ours.data(), 20'000, mr_a)
                    .remote(theirs.data(), mr_b->rkey())
                    .post(x),
                0);
    }
  }
  run(std::chrono::milliseconds(200));
  const auto completions = drain(a.cq);
  EXPECT_EQ(completions.size(), 600u);
  for (const ibv_wc& wc : completions) ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(theirs, ours);
}

TEST_F(QueuePairTest, GarbageIsCountedAndDropped) {
  run();  // HELLO
  auto attacker = network.attach({port::Address::from_ipv4(0x0A000099), 4791});
  const port::Endpoint target = b.context->engine().lanes()[0].port->local();
  const auto send = [&](std::span<const std::byte> bytes) {
    std::uint16_t identification = 0;
    auto out = attacker->reserve(target, bytes.size(), &identification);
    std::copy(bytes.begin(), bytes.end(), out.begin());
    attacker->flush();
    run();
  };
  const DropCounters before = b.context->engine().reception().drops();
  for (std::size_t length = 1; length < 60; ++length)
    send(pattern(length, static_cast<unsigned>(length)));
  EXPECT_EQ(b.context->engine().reception().drops().bad_icrc, before.bad_icrc + 59);

  // Right checksums, wrong contents: a header that contradicts itself, and a QP that does not
  // exist.
  const auto sealed = [&](wire::Header header, std::size_t payload) {
    std::vector<std::byte> bytes(wire::packet_size(header.opcode, payload));
    wire::encode_header(header, payload, bytes);
    return bytes;
  };
  wire::Header header;
  header.opcode = wire::Opcode::kRcWriteOnly;
  header.dest_qpn = qp_b->qpn() ^ 1;
  auto bytes = sealed(header, 16);
  wire::seal(bytes, attacker->local(), target, 0);
  send(bytes);
  EXPECT_EQ(b.context->engine().reception().drops().unknown_qp, before.unknown_qp + 1);
  bytes[0] = std::byte{0x3F};  // no such opcode
  wire::seal(bytes, attacker->local(), target, 0);
  send(bytes);
  EXPECT_EQ(b.context->engine().reception().drops().malformed, before.malformed + 1);

  // The right QPN and rkey from the wrong address.
  header.dest_qpn = qp_b->qpn();
  header.psn = 0xFFFFF0;
  header.reth = {reinterpret_cast<std::uintptr_t>(theirs.data()), mr_b->rkey(), 16};
  bytes = sealed(header, 16);
  std::fill(bytes.begin() + 28, bytes.begin() + 44, std::byte{0x66});
  wire::seal(bytes, attacker->local(), target, 0);
  send(bytes);
  EXPECT_EQ(theirs, std::vector<std::byte>(theirs.size()));
  std::vector<device::QpStatus> status;
  b.context->status(&status);
  EXPECT_GE(status.at(0).dropped, 1u);
  // The connection is none the worse for it.
  ASSERT_EQ(Send(IBV_WR_RDMA_WRITE, 1, ours.data(), 100, mr_a)
                .remote(theirs.data(), mr_b->rkey())
                .post(qp_a),
            0);
  expect_status(a.cq, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace ferry::rnic::testing
