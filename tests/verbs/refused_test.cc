#include "rig.h"
#include "verbs/objects.h"

// Later than the header (verbs/calls/later.cc); what they point to is not looked at.
extern "C" {
void* ibv_alloc_dmah(ibv_context*, void*);
void* ibv_reg_mr_ex(ibv_pd*, void*);
int ibv_query_port_speed(ibv_context*, std::uint32_t, std::uint64_t*);
void* ibv_alloc_buf(ibv_pd*, std::size_t, void**);
void ibv_free_buf(void*);
ibv_mr* ibv_reg_buf_mr(ibv_pd*, void*, void*, std::size_t, int);
void* ibv_create_comp_cntr(ibv_context*, void*);
int ibv_qp_attach_comp_cntr(ibv_qp*, void*, void*);
int _ibv_query_comp_cntr_caps(ibv_context*, void*, std::size_t);
}

// What contexts of ours refuse, and objects of two contexts in one call.
namespace ferry::verbs {
namespace {

template <typename T>
void expect_refused(T* result) {
  EXPECT_EQ(result, nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
}

TEST_F(FullRig, WhatADeviceOfOursDoesNotHave) {
  errno = 0;
  ibv_alloc_dm_attr dm{};
  expect_refused(ibv_alloc_dm(context, &dm));
  ibv_dm memory_of_a_device{};
  memory_of_a_device.context = context;
  expect_refused(ibv_reg_dm_mr(pd, &memory_of_a_device, 0, 8, 0));
  EXPECT_EQ(ibv_free_dm(&memory_of_a_device), EOPNOTSUPP);
  expect_refused(ibv_reg_dmabuf_mr(pd, 0, 8, 0, 0, 0));
  ibv_flow_attr flow{};
  expect_refused(ibv_create_flow(qp, &flow));
  ibv_flow some_flow{0, context, 0};
  EXPECT_EQ(ibv_destroy_flow(&some_flow), EOPNOTSUPP);
  ibv_flow_action_esp_attr esp{};
  expect_refused(ibv_create_flow_action_esp(context, &esp));
  ibv_flow_action action{context};
  EXPECT_EQ(ibv_modify_flow_action_esp(&action, &esp), EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_flow_action(&action), EOPNOTSUPP);
  ibv_counters_init_attr counters{};
  expect_refused(ibv_create_counters(context, &counters));
  ibv_counters some_counters{context};
  std::uint64_t value;
  EXPECT_EQ(ibv_read_counters(&some_counters, &value, 1, 0), EOPNOTSUPP);
  EXPECT_EQ(ibv_attach_counters_point_flow(&some_counters, nullptr, &some_flow), EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_counters(&some_counters), EOPNOTSUPP);
  ibv_wq_init_attr wq{};
  expect_refused(ibv_create_wq(context, &wq));
  ibv_wq some_wq{};
  some_wq.context = context;
  ibv_wq_attr wq_change{};
  EXPECT_EQ(ibv_modify_wq(&some_wq, &wq_change), EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_wq(&some_wq), EOPNOTSUPP);
  ibv_rwq_ind_table_init_attr table{};
  expect_refused(ibv_create_rwq_ind_table(context, &table));
  ibv_rwq_ind_table some_table{};
  some_table.context = context;
  EXPECT_EQ(ibv_destroy_rwq_ind_table(&some_table), EOPNOTSUPP);
  ibv_srq some_srq{};
  some_srq.context = context;
  ibv_ops_wr operation{}, *bad = nullptr;
  EXPECT_EQ(ibv_post_srq_ops(&some_srq, &operation, &bad), EOPNOTSUPP);
  EXPECT_EQ(bad, &operation);
}

TEST_F(FullRig, WhatLaterVersionsOfLibibverbsHaveBeyondThis) {
  errno = 0;
  expect_refused(ibv_alloc_dmah(context, nullptr));
  expect_refused(ibv_reg_mr_ex(pd, nullptr));
  std::uint64_t speed = 0;
  EXPECT_EQ(ibv_query_port_speed(context, 1, &speed), EOPNOTSUPP);
  expect_refused(ibv_create_comp_cntr(context, nullptr));
  EXPECT_EQ(ibv_qp_attach_comp_cntr(qp, nullptr, nullptr), EOPNOTSUPP);
  EXPECT_EQ(_ibv_query_comp_cntr_caps(context, nullptr, 0), EOPNOTSUPP);
}

// ibv_rc_pingpong of rdma-core 65 has its buffer so.
TEST_F(FullRig, BuffersOfLaterVersionsOfLibibverbs) {
  void* handle = nullptr;
  char* buffer = static_cast<char*>(ibv_alloc_buf(pd, 5000, &handle));
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer) % 4096, 0u);
  buffer[4999] = 1;
  ibv_mr* mr = ibv_reg_buf_mr(pd, handle, buffer + 1000, 4000, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, buffer + 1000);
  EXPECT_EQ(mr->length, 4000u);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_reg_buf_mr(pd, handle, buffer + 1000, 4001, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_buf_mr(pd, handle, buffer - 1, 10, 0), nullptr);
  EXPECT_EQ(ibv_alloc_buf(pd, 0, &handle), nullptr);
  ibv_free_buf(handle);
}

// Everything of a second context of ours.
struct TwoContexts : FullRig {
  ibv_context* other = nullptr;
  ibv_pd* other_pd = nullptr;
  ibv_cq* other_cq = nullptr;
  void SetUp() override {
    FullRig::SetUp();
    other = ibv_open_device(context->device);
    other_pd = ibv_alloc_pd(other);
    other_cq = ibv_create_cq(other, 4, nullptr, nullptr, 0);
    ASSERT_TRUE(other && other_pd && other_cq);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_destroy_cq(other_cq), 0);
    EXPECT_EQ(ibv_dealloc_pd(other_pd), 0);
    EXPECT_EQ(ibv_close_device(other), 0);
    FullRig::TearDown();
  }
  template <typename T>
  void expect_invalid(T* result) {
    EXPECT_EQ(result, nullptr);
    EXPECT_EQ(errno, EINVAL);
    errno = 0;
  }
};

TEST_F(TwoContexts, DoNotMix) {
  errno = 0;
  ibv_qp_init_attr attributes = qp_attributes();
  expect_invalid(ibv_create_qp(other_pd, &attributes));
  attributes.send_cq = other_cq;
  expect_invalid(ibv_create_qp(pd, &attributes));
  ibv_srq_init_attr srq_attributes{nullptr, {4, 1, 0}};
  ibv_srq* other_srq = ibv_create_srq(other_pd, &srq_attributes);
  ASSERT_NE(other_srq, nullptr);
  attributes = qp_attributes();
  attributes.srq = other_srq;
  expect_invalid(ibv_create_qp(pd, &attributes));
  EXPECT_EQ(ibv_destroy_srq(other_srq), 0);

  ibv_xrcd_init_attr xrcd_attributes{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, 0100};
  ibv_xrcd* other_xrcd = ibv_open_xrcd(other, &xrcd_attributes);
  ASSERT_NE(other_xrcd, nullptr);
  ibv_qp_init_attr_ex target{};
  target.qp_type = IBV_QPT_XRC_RECV;
  target.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  target.xrcd = other_xrcd;
  expect_invalid(ibv_create_qp_ex(context, &target));
  ibv_srq_init_attr_ex xrc_srq{};
  xrc_srq.comp_mask = 0xf;
  xrc_srq.srq_type = IBV_SRQT_XRC;
  xrc_srq.attr = {4, 1, 0};
  xrc_srq.pd = pd;
  xrc_srq.cq = cq;
  xrc_srq.xrcd = other_xrcd;
  expect_invalid(ibv_create_srq_ex(context, &xrc_srq));
  xrc_srq.pd = other_pd;
  expect_invalid(ibv_create_srq_ex(context, &xrc_srq));
  EXPECT_EQ(ibv_close_xrcd(other_xrcd), 0);

  ibv_mr* other_mr = ibv_reg_mr(other_pd, memory, 64, 0);
  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  ibv_mw* other_mw = ibv_alloc_mw(other_pd, IBV_MW_TYPE_1);
  ibv_mw_bind bind{1, 0, {nullptr, 0, 0, 0}};
  EXPECT_EQ(ibv_bind_mw(qp, other_mw, &bind), EINVAL);
  bind.bind_info.mr = other_mr;
  EXPECT_EQ(ibv_bind_mw(qp, mw, &bind), EPERM);  // verbs.h itself: the PDs differ
  EXPECT_EQ(ibv_rereg_mr(other_mr, IBV_REREG_MR_CHANGE_PD, pd, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dealloc_mw(other_mw), 0);
  EXPECT_EQ(ibv_dereg_mr(other_mr), 0);

  ibv_parent_domain_init_attr parent{};
  parent.pd = other_pd;
  expect_invalid(ibv_alloc_parent_domain(context, &parent));
  ibv_td_init_attr thread{};
  ibv_td* other_td = ibv_alloc_td(other, &thread);
  parent.pd = pd;
  parent.td = other_td;
  expect_invalid(ibv_alloc_parent_domain(context, &parent));
  EXPECT_EQ(ibv_dealloc_td(other_td), 0);
}

}  // namespace
}  // namespace ferry::verbs
