#include "families.h"

#include <fcntl.h>
#include <poll.h>

#include <cstdlib>

namespace ferry::verbs::families {

using Clock = std::chrono::steady_clock;

void Device::SetUp() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_TRUE(list && count > 0);
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  ASSERT_NE(context, nullptr);
  ASSERT_NE(pd = ibv_alloc_pd(context), nullptr);
  ASSERT_NE(channel = ibv_create_comp_channel(context), nullptr);
  ASSERT_NE(cq = ibv_create_cq(context, 256, nullptr, channel, 0), nullptr);
  ASSERT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
  mr_ours = ibv_reg_mr(pd, ours.data(), ours.size(), kAll);
  mr_theirs = ibv_reg_mr(pd, theirs.data(), theirs.size(), kAll);
  ASSERT_TRUE(mr_ours && mr_theirs);
}

void Device::TearDown() {
  EXPECT_EQ(ibv_dereg_mr(mr_ours), 0);
  EXPECT_EQ(ibv_dereg_mr(mr_theirs), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
}

ibv_qp_init_attr Device::qp_attributes(ibv_qp_type type) const {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq;
  attributes.cap = {16, 16, 2, 2, 64};
  attributes.qp_type = type;
  return attributes;
}

ibv_qp* Device::create_qp(ibv_qp_type type) const {
  ibv_qp_init_attr attributes = qp_attributes(type);
  return ibv_create_qp(pd, &attributes);
}

void Device::connect(ibv_qp* qp, std::uint32_t peer) {
  const bool reliable = qp->qp_type != IBV_QPT_UC && qp->qp_type != IBV_QPT_UD;
  const bool requester = reliable && qp->qp_type != IBV_QPT_XRC_RECV;
  const bool responder = reliable && qp->qp_type != IBV_QPT_XRC_SEND;
  const bool datagrams = qp->qp_type == IBV_QPT_UD;
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  if (qp->qp_type == IBV_QPT_UC) a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  a.qkey = kQkey;
  ASSERT_EQ(ibv_modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                              (datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
            0);
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = IBV_MTU_1024;
  a.dest_qp_num = peer;
  a.max_dest_rd_atomic = 4;
  a.min_rnr_timer = 12;
  a.ah_attr.is_global = 1;
  a.ah_attr.grh.dgid = gid;
  a.ah_attr.grh.hop_limit = 64;
  a.ah_attr.port_num = 1;
  ASSERT_EQ(
      ibv_modify_qp(
          qp, &a,
          datagrams ? IBV_QP_STATE
                    : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          (responder ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
      0);
  a.qp_state = IBV_QPS_RTS;
  a.timeout = 18;  // 1 s: machines are busy
  a.retry_cnt = 7;
  a.rnr_retry = 7;
  a.max_rd_atomic = 4;
  ASSERT_EQ(
      ibv_modify_qp(
          qp, &a,
          IBV_QP_STATE | IBV_QP_SQ_PSN | (reliable ? IBV_QP_TIMEOUT : 0) |
              (requester ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)),
      0);
}

void Device::connect(ibv_qp* a, ibv_qp* b) {
  ASSERT_NO_FATAL_FAILURE(connect(a, b->qp_num));
  ASSERT_NO_FATAL_FAILURE(connect(b, a->qp_num));
}

ibv_wc Device::next(ibv_cq* from) {
  ibv_wc wc{};
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (Clock::now() < end) {
    const int n = ibv_poll_cq(from ? from : cq, 1, &wc);
    EXPECT_GE(n, 0);
    if (n == 1) return wc;
  }
  ADD_FAILURE() << "no completion";
  wc.status = IBV_WC_GENERAL_ERR;
  return wc;
}

void Device::expect_none(std::chrono::milliseconds time) {
  ibv_wc wc{};
  const auto end = Clock::now() + time;
  while (Clock::now() < end) ASSERT_EQ(ibv_poll_cq(cq, 1, &wc), 0) << "wr_id " << wc.wr_id;
}

ibv_async_event Device::event() {
  pollfd p{context->async_fd, POLLIN, 0};
  ibv_async_event e{};
  EXPECT_EQ(::poll(&p, 1, 20000), 1) << "no event";
  if (p.revents & POLLIN) {
    EXPECT_EQ(ibv_get_async_event(context, &e), 0);
  }
  return e;
}

namespace {

ibv_recv_wr receive(std::uint64_t id, ibv_sge* sge) {
  ibv_recv_wr wr{};
  wr.wr_id = id;
  wr.sg_list = sge;
  wr.num_sge = 1;
  return wr;
}

}  // namespace

int post_receive(ibv_qp* qp, std::uint64_t id, const ibv_mr* mr, std::uint32_t length) {
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(mr->addr), length, mr->lkey};
  ibv_recv_wr wr = receive(id, &sge), *bad = nullptr;
  return ibv_post_recv(qp, &wr, &bad);
}

int post_receive(ibv_srq* srq, std::uint64_t id, const ibv_mr* mr, std::uint32_t length) {
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(mr->addr), length, mr->lkey};
  ibv_recv_wr wr = receive(id, &sge), *bad = nullptr;
  return ibv_post_srq_recv(srq, &wr, &bad);
}

}  // namespace ferry::verbs::families

int main(int count, char** arguments) {
  ::setenv("FERRY_NETDEV", "lo", 1);
  ::setenv("FERRYD_SOCKET", "/nonexistent/ferryd.sock", 1);
  ::testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
