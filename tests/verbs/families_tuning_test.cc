#include <poll.h>

#include "families.h"

// What a program tunes on a connection that works: its path, its rate, how often it is woken, and
// what it does not want to read.
namespace ferry::verbs::families {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Tuned : ConnectedPair<IBV_QPT_RC> {
  int write(const ibv_mr* from, std::uint32_t length) {
    return Request(IBV_WR_RDMA_WRITE, from, length).to(mr_theirs).post(a);
  }
  bool has_event(milliseconds limit) const {
    pollfd p{channel->fd, POLLIN, 0};
    return ::poll(&p, 1, static_cast<int>(limit.count())) == 1;
  }
  void take_event() {
    ibv_cq* from = nullptr;
    void* context_of_cq = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel, &from, &context_of_cq), 0);
    EXPECT_EQ(from, cq);
    ibv_ack_cq_events(from, 1);
  }
  int moderate(std::uint16_t count, std::uint16_t period) {
    ibv_modify_cq_attr attributes{IBV_CQ_ATTR_MODERATE, {count, period}};
    return ibv_modify_cq(cq, &attributes);
  }
};

TEST_F(Tuned, AModeratedEventWaitsForItsPeriod) {
  ASSERT_EQ(moderate(100, 60000), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  const auto start = Clock::now();
  ASSERT_EQ(write(mr_ours, 8), 0);
  ASSERT_TRUE(has_event(std::chrono::seconds(20)));
  EXPECT_GE(Clock::now() - start, milliseconds(60));
  take_event();
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
}

TEST_F(Tuned, AModeratedEventComesWithTheLastOfItsCount) {
  ASSERT_EQ(moderate(3, 65535), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(write(mr_ours, 8), 0);
  ASSERT_TRUE(has_event(std::chrono::seconds(20)));
  take_event();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(has_event(milliseconds(0)));
}

TEST_F(Tuned, ANullMrReadsAsZeros) {
  ibv_mr* null_mr = ibv_alloc_null_mr(pd);
  ASSERT_NE(null_mr, nullptr);
  theirs.fill('x');
  ASSERT_EQ(write(null_mr, 100), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(theirs[0], 0);
  EXPECT_EQ(theirs[99], 0);
  EXPECT_EQ(theirs[100], 'x');
  // A receive of which only the middle is wanted.
  std::strcpy(ours.data(), "head middle tail");
  ibv_sge parts[3] = {{0, 5, null_mr->lkey},
                      {reinterpret_cast<std::uintptr_t>(theirs.data()), 6, mr_theirs->lkey},
                      {0, 100, null_mr->lkey}};
  ibv_qp_init_attr wide = qp_attributes(IBV_QPT_RC);
  wide.cap.max_recv_sge = 3;
  ibv_qp* receiver = ibv_create_qp(pd, &wide);
  ibv_qp* sender = create_qp(IBV_QPT_RC);
  ASSERT_TRUE(receiver && sender);
  ASSERT_NO_FATAL_FAILURE(connect(sender, receiver));
  ibv_recv_wr receive{};
  receive.sg_list = parts;
  receive.num_sge = 3;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(receiver, &receive, &bad), 0);
  ASSERT_EQ(Request(IBV_WR_SEND, mr_ours, 17).post(sender), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(theirs.data(), "middle", 6), 0);
  EXPECT_EQ(theirs[6], 0);  // of the WRITE
  EXPECT_EQ(ibv_destroy_qp(sender), 0);
  EXPECT_EQ(ibv_destroy_qp(receiver), 0);
  EXPECT_EQ(ibv_dereg_mr(null_mr), 0);
}

TEST_F(Tuned, ARateHoldsRequestsBack) {
  ibv_qp_rate_limit_attr limit{800, 1, 0, 0};  // 8000 bytes take 80 ms
  ASSERT_EQ(ibv_modify_qp_rate_limit(a, &limit), 0);
  const auto start = Clock::now();
  ASSERT_EQ(write(mr_ours, 8000), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_GE(Clock::now() - start, milliseconds(60));  // the last packet is not waited for
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(a, &attributes, IBV_QP_RATE_LIMIT, &init), 0);
  EXPECT_EQ(attributes.rate_limit, 800u);
}

TEST_F(Tuned, ThePathLeadsOverTheOtherAddresses) {
  ibv_gid ipv6{};
  if (ibv_query_gid(context, 1, 1, &ipv6) != 0) GTEST_SKIP() << "no IPv6 on the loopback interface";
  ASSERT_EQ(write(mr_ours, 8), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  ibv_qp_attr attributes{};
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.grh.dgid = ipv6;
  attributes.ah_attr.port_num = 1;
  for (ibv_qp* qp : {a, b}) {
    attributes.qp_state = IBV_QPS_SQD;
    ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
    attributes.ah_attr.grh.sgid_index = 0;
    EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_AV), EINVAL);  // of the other family
    attributes.ah_attr.grh.sgid_index = 1;
    ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_AV), 0);
    attributes.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
  }
  std::strcpy(ours.data(), "over IPv6");
  ASSERT_EQ(write(mr_ours, 10), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_STREQ(theirs.data(), "over IPv6");
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(a, &attributes, IBV_QP_AV, &init), 0);
  EXPECT_EQ(attributes.ah_attr.grh.sgid_index, 1);
}

}  // namespace
}  // namespace ferry::verbs::families
