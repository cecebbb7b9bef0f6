#include <endian.h>

#include "families.h"

namespace ferry::verbs::families {
namespace {

// --- UC

struct Uc : ConnectedPair<IBV_QPT_UC> {
  // Of a send at a and the receive at b, which come in any order.
  ibv_wc received() {
    ibv_wc result{};
    for (int i = 0; i < 2; ++i) {
      const ibv_wc wc = next();
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      if (wc.opcode & IBV_WC_RECV) result = wc;
    }
    return result;
  }
};

TEST_F(Uc, SendsAndWrites) {
  std::strcpy(ours.data(), "unreliable");
  ASSERT_EQ(post_receive(b, 5, mr_theirs, 64), 0);
  Request send(IBV_WR_SEND_WITH_IMM, mr_ours, 11);
  send.wr.imm_data = 0x77;
  ASSERT_EQ(send.post(a), 0);
  ibv_wc wc = received();
  EXPECT_EQ(wc.wr_id, 5u);
  EXPECT_EQ(wc.byte_len, 11u);
  EXPECT_TRUE(wc.wc_flags & IBV_WC_WITH_IMM);
  EXPECT_EQ(wc.imm_data, 0x77u);
  EXPECT_STREQ(theirs.data(), "unreliable");
  ASSERT_EQ(post_receive(b, 6, mr_theirs, 64), 0);
  Request write(IBV_WR_RDMA_WRITE_WITH_IMM, mr_ours, 8000);
  write.to(mr_theirs);
  ASSERT_EQ(write.post(a), 0);
  wc = received();
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.byte_len, 8000u);
}

TEST_F(Uc, WhatItDoesNotHave) {
  for (ibv_wr_opcode opcode :
       {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_ATOMIC_WRITE, IBV_WR_SEND_WITH_INV}) {
    Request request(opcode, mr_ours, 8);
    EXPECT_EQ(request.to(mr_theirs).post(a), EINVAL) << opcode;
  }
  Request tso(IBV_WR_TSO, mr_ours, 8);
  EXPECT_EQ(tso.post(a), EOPNOTSUPP);
}

TEST_F(Uc, AWindowOfType2) {
  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  Request bind(IBV_WR_BIND_MW, nullptr, 0);
  bind.wr.bind_mw.mw = mw;
  const std::uint32_t rkey = bind.wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  bind.wr.bind_mw.bind_info = {mr_theirs, reinterpret_cast<std::uintptr_t>(theirs.data()), 64,
                               IBV_ACCESS_REMOTE_WRITE};
  ASSERT_EQ(bind.post(b), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  ours[0] = 'u';
  ASSERT_EQ(post_receive(b, 3, mr_theirs, 64), 0);
  Request write(IBV_WR_RDMA_WRITE_WITH_IMM, mr_ours, 1);
  write.to(reinterpret_cast<std::uintptr_t>(theirs.data()), rkey);
  ASSERT_EQ(write.post(a), 0);
  received();
  EXPECT_EQ(theirs[0], 'u');
  Request invalidate(IBV_WR_LOCAL_INV, nullptr, 0);
  invalidate.wr.invalidate_rkey = rkey;
  ASSERT_EQ(invalidate.post(b), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

// --- UD

struct Ud : Device {
  ibv_qp* a = nullptr;
  ibv_qp* b = nullptr;
  ibv_ah* ah = nullptr;
  void SetUp() override {
    Device::SetUp();
    a = create_qp(IBV_QPT_UD);
    b = create_qp(IBV_QPT_UD);
    ASSERT_TRUE(a && b);
    ASSERT_NO_FATAL_FAILURE(connect(a, b));
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.grh.dgid = gid;
    attributes.grh.hop_limit = 64;
    attributes.port_num = 1;
    ah = ibv_create_ah(pd, &attributes);
    ASSERT_NE(ah, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
    EXPECT_EQ(ibv_destroy_qp(a), 0);
    EXPECT_EQ(ibv_destroy_qp(b), 0);
    Device::TearDown();
  }
  int send(ibv_qp* from, ibv_ah* where, std::uint32_t qpn, std::uint32_t qkey, std::uint32_t length,
           ibv_wr_opcode opcode = IBV_WR_SEND) {
    Request request(opcode, mr_ours, length);
    request.wr.wr.ud = {where, qpn, qkey};
    return request.post(from);
  }
  ibv_wc received() {
    ibv_wc result{};
    for (int i = 0; i < 2; ++i) {
      const ibv_wc wc = next();
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      if (wc.opcode & IBV_WC_RECV) result = wc;
    }
    return result;
  }
};

TEST_F(Ud, ADatagramTellsWhereItCameFrom) {
  std::strcpy(ours.data(), "datagram");
  ASSERT_EQ(post_receive(b, 5, mr_theirs, 1000), 0);
  ASSERT_EQ(send(a, ah, b->qp_num, kQkey, 9), 0);
  ibv_wc wc = received();
  EXPECT_EQ(wc.byte_len, kGrh + 9);
  EXPECT_EQ(wc.src_qp, a->qp_num);
  EXPECT_TRUE(wc.wc_flags & IBV_WC_GRH);
  EXPECT_STREQ(theirs.data() + kGrh, "datagram");
  // And the answer to it finds its way.
  ibv_ah* back = ibv_create_ah_from_wc(pd, &wc, reinterpret_cast<ibv_grh*>(theirs.data()), 1);
  ASSERT_NE(back, nullptr);
  ASSERT_EQ(post_receive(a, 6, mr_theirs, 1000), 0);
  ASSERT_EQ(send(b, back, wc.src_qp, kQkey, 9), 0);
  wc = received();
  EXPECT_EQ(wc.wr_id, 6u);
  EXPECT_EQ(wc.src_qp, b->qp_num);
  EXPECT_EQ(ibv_destroy_ah(back), 0);
}

TEST_F(Ud, AWrongQKeyIsDropped) {
  ASSERT_EQ(post_receive(b, 5, mr_theirs, 1000), 0);
  ASSERT_EQ(send(a, ah, b->qp_num, kQkey + 1, 9), 0);
  EXPECT_EQ(next().opcode, IBV_WC_SEND);
  expect_none(std::chrono::milliseconds(50));
  // With bit 31 the sender's own is taken (clause 10.2.5).
  ASSERT_EQ(send(a, ah, b->qp_num, 0x80000000, 9), 0);
  EXPECT_EQ(received().wr_id, 5u);
}

TEST_F(Ud, WhatItDoesNotHave) {
  for (ibv_wr_opcode opcode :
       {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE, IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV,
        IBV_WR_BIND_MW}) {
    EXPECT_EQ(send(a, ah, b->qp_num, kQkey, 8, opcode), EINVAL) << opcode;
  }
  EXPECT_EQ(send(a, nullptr, b->qp_num, kQkey, 8), EINVAL);  // to nowhere
}

TEST_F(Ud, DatagramsEndAtTheMtu) {
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
  const std::uint32_t mtu = 128u << port.active_mtu;
  ASSERT_LE(mtu + kGrh, theirs.size());
  ASSERT_EQ(post_receive(b, 5, mr_theirs, static_cast<std::uint32_t>(theirs.size())), 0);
  ASSERT_EQ(send(a, ah, b->qp_num, kQkey, mtu), 0);
  EXPECT_EQ(received().byte_len, mtu + kGrh);
  const int error = send(a, ah, b->qp_num, kQkey, mtu + 1);
  if (error == 0) {
    EXPECT_EQ(next().status, IBV_WC_LOC_LEN_ERR);
  } else {
    EXPECT_EQ(error, EINVAL);
  }
}

TEST_F(Ud, AGroup) {
  ibv_gid group{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}};
  ibv_gid nobody = gid;
  EXPECT_EQ(ibv_attach_mcast(b, &nobody, 0), EINVAL);  // no group's
  ASSERT_EQ(ibv_attach_mcast(b, &group, 0), 0);
  ASSERT_EQ(post_receive(b, 8, mr_theirs, 1000), 0);
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.grh.dgid = group;
  attributes.grh.hop_limit = 1;
  attributes.port_num = 1;
  ibv_ah* to_group = ibv_create_ah(pd, &attributes);
  ASSERT_NE(to_group, nullptr);
  ASSERT_EQ(send(a, to_group, 0xFFFFFF, kQkey, 9), 0);
  EXPECT_EQ(received().wr_id, 8u);
  EXPECT_EQ(ibv_destroy_qp(b), EBUSY);  // it is attached
  EXPECT_EQ(ibv_detach_mcast(b, &group, 0), 0);
  EXPECT_NE(ibv_detach_mcast(b, &group, 0), 0);
  ASSERT_EQ(post_receive(b, 9, mr_theirs, 1000), 0);
  ASSERT_EQ(send(a, to_group, 0xFFFFFF, kQkey, 9), 0);
  EXPECT_EQ(next().opcode, IBV_WC_SEND);
  expect_none(std::chrono::milliseconds(50));
  EXPECT_EQ(ibv_destroy_ah(to_group), 0);
}

TEST_F(Ud, AGroupIsLeftByDetachingOnly) {
  ibv_gid group{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 4}};
  ASSERT_EQ(ibv_attach_mcast(b, &group, 0), 0);
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(b, &reset, IBV_QP_STATE), 0);
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.grh.dgid = group;
  attributes.port_num = 1;
  ibv_ah* to_group = ibv_create_ah(pd, &attributes);
  ASSERT_NE(to_group, nullptr);
  ASSERT_NO_FATAL_FAILURE(connect(b, a->qp_num));
  ASSERT_EQ(post_receive(b, 8, mr_theirs, 1000), 0);
  ASSERT_EQ(send(a, to_group, 0xFFFFFF, kQkey, 9), 0);
  EXPECT_EQ(received().wr_id, 8u);
  EXPECT_EQ(ibv_destroy_qp(b), EBUSY);
  EXPECT_EQ(ibv_detach_mcast(b, &group, 0), 0);
  EXPECT_EQ(ibv_destroy_ah(to_group), 0);
}

TEST_F(Ud, WhoBlocksItHearsOthersButNotItself) {
  ibv_qp_init_attr_ex wanted{};
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.cap = {4, 4, 1, 1, 16};
  wanted.qp_type = IBV_QPT_UD;
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  wanted.pd = pd;
  wanted.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  ibv_qp* deaf = ibv_create_qp_ex(context, &wanted);
  ASSERT_NE(deaf, nullptr);
  ASSERT_NO_FATAL_FAILURE(connect(deaf, b->qp_num));
  ibv_gid group{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 5}};
  for (ibv_qp* qp : {deaf, b}) {
    ASSERT_EQ(ibv_attach_mcast(qp, &group, 0), 0);
    ASSERT_EQ(post_receive(qp, qp->qp_num, mr_theirs, 1000), 0);
  }
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.grh.dgid = group;
  attributes.port_num = 1;
  ibv_ah* to_group = ibv_create_ah(pd, &attributes);
  ASSERT_NE(to_group, nullptr);
  ASSERT_EQ(send(deaf, to_group, 0xFFFFFF, kQkey, 9), 0);
  EXPECT_EQ(received().qp_num, b->qp_num);
  ASSERT_EQ(send(a, to_group, 0xFFFFFF, kQkey, 9), 0);
  EXPECT_EQ(received().qp_num, deaf->qp_num);  // and not the receive of its own datagram
  for (ibv_qp* qp : {deaf, b}) EXPECT_EQ(ibv_detach_mcast(qp, &group, 0), 0);
  EXPECT_EQ(ibv_destroy_ah(to_group), 0);
  EXPECT_EQ(ibv_destroy_qp(deaf), 0);
  // Only datagrams come from groups.
  wanted.qp_type = IBV_QPT_RC;
  errno = 0;
  EXPECT_EQ(ibv_create_qp_ex(context, &wanted), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Ud, BuiltRequests) {
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = attributes.recv_cq = cq;
  attributes.cap = {4, 4, 1, 1, 16};
  attributes.qp_type = IBV_QPT_UD;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.pd = pd;
  attributes.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM;
  ibv_qp* made = ibv_create_qp_ex(context, &attributes);
  ASSERT_NE(made, nullptr);
  ASSERT_NO_FATAL_FAILURE(connect(made, b->qp_num));
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(made);
  ASSERT_EQ(post_receive(b, 5, mr_theirs, 1000), 0);
  ibv_wr_start(ex);
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send_imm(ex, 0x99);
  char text[] = "inline";
  ibv_wr_set_inline_data(ex, text, sizeof text);
  ibv_wr_set_ud_addr(ex, ah, b->qp_num, kQkey);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  const ibv_wc wc = received();
  EXPECT_EQ(wc.src_qp, made->qp_num);
  EXPECT_EQ(wc.imm_data, 0x99u);
  EXPECT_STREQ(theirs.data() + kGrh, "inline");
  EXPECT_EQ(ibv_destroy_qp(made), 0);
}

TEST_F(Ud, AnSrqServesDatagrams) {
  ibv_srq_init_attr srq_attributes{nullptr, {16, 1, 0}};
  ibv_srq* srq = ibv_create_srq(pd, &srq_attributes);
  ASSERT_NE(srq, nullptr);
  ibv_qp_init_attr attributes = qp_attributes(IBV_QPT_UD);
  attributes.srq = srq;
  ibv_qp* sharing = ibv_create_qp(pd, &attributes);
  ASSERT_NE(sharing, nullptr);
  ASSERT_NO_FATAL_FAILURE(connect(sharing, std::uint32_t{0}));
  ASSERT_EQ(post_receive(srq, 55, mr_theirs, 1000), 0);
  ASSERT_EQ(send(a, ah, sharing->qp_num, kQkey, 9), 0);
  EXPECT_EQ(received().wr_id, 55u);
  EXPECT_EQ(ibv_destroy_qp(sharing), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

}  // namespace
}  // namespace ferry::verbs::families
