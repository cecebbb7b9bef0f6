#include "families.h"

#include <fcntl.h>
#include <time.h>

#include <thread>

namespace ferry::verbs::families {
namespace {

std::uint64_t word(const void* at) {
  std::uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
void set_word(void* at, std::uint64_t value) {
  std::memcpy(at, &value, sizeof value);
}

// --- RC

struct Rc : ConnectedPair<IBV_QPT_RC> {};

TEST_F(Rc, AtomicsGiveWhatWasThereBefore) {
  set_word(theirs.data(), 40);
  Request add(IBV_WR_ATOMIC_FETCH_AND_ADD, mr_ours, 8);
  add.wr.wr.atomic = {reinterpret_cast<std::uintptr_t>(theirs.data()), 2, 0, mr_theirs->rkey};
  ASSERT_EQ(add.post(a), 0);
  ibv_wc wc = next();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(word(ours.data()), 40u);
  EXPECT_EQ(word(theirs.data()), 42u);
  Request swap(IBV_WR_ATOMIC_CMP_AND_SWP, mr_ours, 8);
  swap.wr.wr.atomic = {reinterpret_cast<std::uintptr_t>(theirs.data()), 42, 7, mr_theirs->rkey};
  ASSERT_EQ(swap.post(a), 0);
  wc = next();
  EXPECT_EQ(wc.opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(word(ours.data()), 42u);
  EXPECT_EQ(word(theirs.data()), 7u);
  ASSERT_EQ(swap.post(a), 0);  // compares with 42 again
  next();
  EXPECT_EQ(word(ours.data()), 7u);
  EXPECT_EQ(word(theirs.data()), 7u);
}

TEST_F(Rc, AWindowOfType1) {
  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  ibv_mw_bind bind{5,
                   IBV_SEND_SIGNALED,
                   {mr_theirs, reinterpret_cast<std::uintptr_t>(theirs.data()) + 64, 64,
                    IBV_ACCESS_REMOTE_WRITE}};
  ASSERT_EQ(ibv_bind_mw(b, mw, &bind), 0);
  ibv_wc wc = next();
  EXPECT_EQ(wc.wr_id, 5u);
  EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
  ours[0] = 'w';
  Request inside(IBV_WR_RDMA_WRITE, mr_ours, 64);
  inside.to(reinterpret_cast<std::uintptr_t>(theirs.data()) + 64, mw->rkey);
  ASSERT_EQ(inside.post(a), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(theirs[64], 'w');
  EXPECT_EQ(ibv_dereg_mr(mr_theirs), EBUSY);  // a window is bound to it
  Request outside(IBV_WR_RDMA_WRITE, mr_ours, 65);
  outside.to(reinterpret_cast<std::uintptr_t>(theirs.data()) + 64, mw->rkey);
  ASSERT_EQ(outside.post(a), 0);
  EXPECT_EQ(next().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Rc, AWindowOfType2AndItsEnds) {
  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  const auto bind_it = [&] {
    Request bind(IBV_WR_BIND_MW, nullptr, 0);
    bind.wr.bind_mw.mw = mw;
    bind.wr.bind_mw.rkey = mw->rkey = ibv_inc_rkey(mw->rkey);
    bind.wr.bind_mw.bind_info = {mr_theirs, reinterpret_cast<std::uintptr_t>(theirs.data()), 64,
                                 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
    ASSERT_EQ(bind.post(b), 0);
    EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  };
  ASSERT_NO_FATAL_FAILURE(bind_it());
  theirs[0] = 'r';
  Request read(IBV_WR_RDMA_READ, mr_ours, 64);
  read.to(reinterpret_cast<std::uintptr_t>(theirs.data()), mw->rkey);
  ASSERT_EQ(read.post(a), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ours[0], 'r');
  // Ended by its owner, made again, and ended by the peer.
  Request invalidate(IBV_WR_LOCAL_INV, nullptr, 0);
  invalidate.wr.invalidate_rkey = mw->rkey;
  ASSERT_EQ(invalidate.post(b), 0);
  ibv_wc wc = next();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
  ASSERT_NO_FATAL_FAILURE(bind_it());
  ASSERT_EQ(post_receive(b, 9, mr_theirs, 64), 0);
  Request end(IBV_WR_SEND_WITH_INV, mr_ours, 8);
  end.wr.invalidate_rkey = mw->rkey;
  ASSERT_EQ(end.post(a), 0);
  for (int i = 0; i < 2; ++i) {
    wc = next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    if (wc.wr_id == 9) {
      EXPECT_TRUE(wc.wc_flags & IBV_WC_WITH_INV);
      EXPECT_EQ(wc.invalidated_rkey, mw->rkey);
    }
  }
  ASSERT_EQ(read.to(reinterpret_cast<std::uintptr_t>(theirs.data()), mw->rkey).post(a), 0);
  EXPECT_EQ(next().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(Rc, ReregistrationAndZeroBasedAndImplicitRegions) {
  ours[0] = '1';
  ibv_mr* moving = ibv_reg_mr(pd, theirs.data(), 64, kAll);
  ASSERT_NE(moving, nullptr);
  ASSERT_EQ(
      ibv_rereg_mr(moving, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, theirs.data() + 128, 64, 0),
      0);
  Request write(IBV_WR_RDMA_WRITE, mr_ours, 1);
  ASSERT_EQ(write.to(moving).post(a), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(theirs[128], '1');
  EXPECT_EQ(ibv_dereg_mr(moving), 0);

  ibv_mr* zero = ibv_reg_mr(pd, theirs.data() + 256, 64, kAll | IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(zero, nullptr);
  ASSERT_EQ(write.to(3, zero->rkey).post(a), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(theirs[259], '1');
  EXPECT_EQ(ibv_dereg_mr(zero), 0);

  ibv_mr* implicit = ibv_reg_mr(pd, nullptr, SIZE_MAX, kAll | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(implicit, nullptr);
  ASSERT_EQ(write.to(reinterpret_cast<std::uintptr_t>(theirs.data()) + 300, implicit->rkey).post(a),
            0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(theirs[300], '1');
  EXPECT_EQ(ibv_dereg_mr(implicit), 0);
}

TEST_F(Rc, EventsOfItsLife) {
  ASSERT_EQ(post_receive(b, 1, mr_theirs, 64), 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = 1;
  ASSERT_EQ(ibv_modify_qp(a, &attributes, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  ibv_async_event e = event();
  EXPECT_EQ(e.event_type, IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(e.element.qp, a);
  ibv_ack_async_event(&e);
}

// --- ibv_wr_*

struct Builder : Rc {
  ibv_qp* made = nullptr;
  ibv_qp_ex* ex = nullptr;
  ibv_qp* peer = nullptr;
  void SetUp() override {
    Rc::SetUp();
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.cap = {4, 4, 1, 1, 16};
    attributes.qp_type = IBV_QPT_RC;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.pd = pd;
    attributes.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
                                IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    made = ibv_create_qp_ex(context, &attributes);
    ASSERT_NE(made, nullptr);
    granted = attributes.cap.max_send_wr;
    ex = ibv_qp_to_qp_ex(made);
    peer = create_qp(IBV_QPT_RC);
    ASSERT_NO_FATAL_FAILURE(connect(made, peer));
  }
  void TearDown() override {
    EXPECT_EQ(ibv_destroy_qp(made), 0);
    EXPECT_EQ(ibv_destroy_qp(peer), 0);
    Rc::TearDown();
  }
  std::uint32_t granted = 0;
};

TEST_F(Builder, ABatchThatDoesNotFitPostsNothing) {
  const auto batch = [&](std::uint32_t count) {
    ibv_wr_start(ex);
    for (std::uint32_t i = 0; i < count; ++i) {
      ex->wr_id = i;
      ex->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_rdma_write(ex, mr_theirs->rkey, reinterpret_cast<std::uintptr_t>(theirs.data()) + i);
      ibv_wr_set_sge(ex, mr_ours->lkey, reinterpret_cast<std::uintptr_t>(ours.data()), 1);
    }
    return ibv_wr_complete(ex);
  };
  ours[0] = 'b';
  EXPECT_EQ(batch(granted + 1), ENOMEM);
  expect_none(std::chrono::milliseconds(20));
  EXPECT_EQ(theirs[0], 0);
  EXPECT_EQ(batch(granted), 0);
  for (std::uint32_t i = 0; i < granted; ++i) {
    const ibv_wc wc = next();
    EXPECT_EQ(wc.wr_id, i);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(theirs[granted - 1], 'b');
}

TEST_F(Builder, AtomicWriteAndFetchAdd) {
  const std::uint64_t value = 0x0102030405060708;
  ibv_wr_start(ex);
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_atomic_write(ex, mr_theirs->rkey, reinterpret_cast<std::uintptr_t>(theirs.data()), &value);
  ibv_wr_atomic_fetch_add(ex, mr_theirs->rkey, reinterpret_cast<std::uintptr_t>(theirs.data()), 1);
  ibv_wr_set_sge(ex, mr_ours->lkey, reinterpret_cast<std::uintptr_t>(ours.data()), 8);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ibv_wc wc = next();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(word(ours.data()), value);
  EXPECT_EQ(word(theirs.data()), value + 1);
}

// --- SRQ and XRC

TEST_F(Device, SeveralQpsOfOneSrq) {
  ibv_srq_init_attr srq_attributes{nullptr, {16, 1, 0}};
  ibv_srq* srq = ibv_create_srq(pd, &srq_attributes);
  ASSERT_NE(srq, nullptr);
  ibv_qp* senders[3];
  ibv_qp* receivers[3];
  for (int i = 0; i < 3; ++i) {
    ibv_qp_init_attr attributes = qp_attributes(IBV_QPT_RC);
    senders[i] = ibv_create_qp(pd, &attributes);
    attributes.srq = srq;
    receivers[i] = ibv_create_qp(pd, &attributes);
    ASSERT_TRUE(senders[i] && receivers[i]);
    ASSERT_NO_FATAL_FAILURE(connect(senders[i], receivers[i]));
  }
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post_receive(srq, 100 + i, mr_theirs, 64), 0);
  ibv_srq_attr limit{0, 0, 2};
  ASSERT_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
  std::uint32_t received_on = 0;
  for (int i = 0; i < 3; ++i) {
    Request send(IBV_WR_SEND, mr_ours, 8);
    ASSERT_EQ(send.post(senders[i]), 0);
    for (int k = 0; k < 2; ++k) {
      const ibv_wc wc = next();
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      if (wc.opcode == IBV_WC_RECV) {
        EXPECT_EQ(wc.wr_id, 100u + static_cast<unsigned>(i));  // in the order of posting
        EXPECT_EQ(wc.qp_num, receivers[i]->qp_num);
        ++received_on;
      }
    }
  }
  EXPECT_EQ(received_on, 3u);
  ibv_async_event e;
  do {  // COMM_EST may come before
    e = event();
    ibv_ack_async_event(&e);
  } while (e.event_type == IBV_EVENT_COMM_EST);
  EXPECT_EQ(e.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(e.element.srq, srq);
  ASSERT_EQ(ibv_query_srq(srq, &limit), 0);
  EXPECT_EQ(limit.srq_limit, 0u);  // disarmed
  EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ibv_destroy_qp(senders[i]), 0);
    EXPECT_EQ(ibv_destroy_qp(receivers[i]), 0);
  }
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

struct XrcFamily : Device {
  ibv_xrcd* xrcd = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* initiator = nullptr;
  ibv_qp* target = nullptr;
  std::uint32_t number = 0;
  void SetUp() override {
    Device::SetUp();
    ibv_xrcd_init_attr domain{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
    xrcd = ibv_open_xrcd(context, &domain);
    ASSERT_NE(xrcd, nullptr);
    ibv_srq_init_attr_ex queue{};
    queue.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                      IBV_SRQ_INIT_ATTR_CQ;
    queue.srq_type = IBV_SRQT_XRC;
    queue.attr = {16, 1, 0};
    queue.pd = pd;
    queue.cq = cq;
    queue.xrcd = xrcd;
    srq = ibv_create_srq_ex(context, &queue);
    ASSERT_NE(srq, nullptr);
    ASSERT_EQ(ibv_get_srq_num(srq, &number), 0);
    initiator = create_qp(IBV_QPT_XRC_SEND);
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_XRC_RECV;
    attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attributes.xrcd = xrcd;
    target = ibv_create_qp_ex(context, &attributes);
    ASSERT_TRUE(initiator && target);
    ASSERT_NO_FATAL_FAILURE(connect(initiator, target));
  }
  void TearDown() override {
    EXPECT_EQ(ibv_destroy_qp(initiator), 0);
    if (target) {
      EXPECT_EQ(ibv_destroy_qp(target), 0);
    }
    EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
    Device::TearDown();
  }
};

TEST_F(XrcFamily, EachRequestNamesItsSrq) {
  ASSERT_EQ(post_receive(srq, 7, mr_theirs, 64), 0);
  Request send(IBV_WR_SEND_WITH_IMM, mr_ours, 8);
  send.wr.imm_data = 0x1234;
  send.wr.qp_type.xrc.remote_srqn = number;
  ASSERT_EQ(send.post(initiator), 0);
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    if (wc.opcode == IBV_WC_RECV) {
      EXPECT_EQ(wc.wr_id, 7u);
      EXPECT_EQ(wc.imm_data, 0x1234u);
    }
  }
}

TEST_F(XrcFamily, ATargetOutlivesTheStructThatMadeIt) {
  ibv_qp_open_attr attributes{};
  attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attributes.qp_num = target->qp_num;
  attributes.xrcd = xrcd;
  attributes.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* second = ibv_open_qp(context, &attributes);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(ibv_destroy_qp(target), 0);
  target = nullptr;
  ours[0] = 'x';
  Request write(IBV_WR_RDMA_WRITE, mr_ours, 1);
  write.to(mr_theirs);
  write.wr.qp_type.xrc.remote_srqn = number;  // whose PD the region must be of
  ASSERT_EQ(write.post(initiator), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(theirs[0], 'x');
  EXPECT_EQ(ibv_destroy_qp(second), 0);
}

// --- CQs and the clock

TEST_F(Rc, TimestampsAreOfTheDevicesClock) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 16;
  attributes.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  ibv_cq_ex* ex = ibv_create_cq_ex(context, &attributes);
  ASSERT_NE(ex, nullptr);
  ibv_qp_init_attr init = qp_attributes(IBV_QPT_RC);
  init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(ex);
  ibv_qp* c = ibv_create_qp(pd, &init);
  ibv_qp* d = ibv_create_qp(pd, &init);
  ASSERT_NO_FATAL_FAILURE(connect(c, d));
  const auto clock = [&] {
    ibv_values_ex values{};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    EXPECT_EQ(ibv_query_rt_values_ex(context, &values), 0);
    return static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
  };
  const std::uint64_t before = clock();
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  Request write(IBV_WR_RDMA_WRITE, mr_ours, 8);
  ASSERT_EQ(write.to(mr_theirs).post(c), 0);
  ibv_poll_cq_attr poll{};
  int error = ENOENT;
  while (error == ENOENT) error = ibv_start_poll(ex, &poll);
  ASSERT_EQ(error, 0);
  EXPECT_EQ(ex->status, IBV_WC_SUCCESS);
  EXPECT_GE(ibv_wc_read_completion_ts(ex), before);
  EXPECT_LE(ibv_wc_read_completion_ts(ex), clock());
  EXPECT_GE(ibv_wc_read_completion_wallclock_ns(ex),
            static_cast<std::uint64_t>(wall.tv_sec) * 1000000000u);
  ibv_end_poll(ex);
  EXPECT_EQ(ibv_destroy_qp(c), 0);
  EXPECT_EQ(ibv_destroy_qp(d), 0);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
}

TEST_F(Rc, AResizedCqKeepsWhatIsInIt) {
  Request write(IBV_WR_RDMA_WRITE, mr_ours, 8);
  write.to(mr_theirs);
  for (int i = 0; i < 4; ++i) {
    write.wr.wr_id = static_cast<std::uint64_t>(i);
    ASSERT_EQ(write.post(a), 0);
  }
  write.wr.wr_id = 4;
  ASSERT_EQ(write.post(a), 0);
  ASSERT_EQ(ibv_resize_cq(cq, 1000), 0);
  EXPECT_GE(cq->cqe, 1000);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(next().wr_id, i);
  EXPECT_EQ(ibv_resize_cq(cq, 1 << 30), EINVAL);
}

// --- Domains and imports

TEST_F(Device, AParentDomainsObjectsWorkWithItsPds) {
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = pd;
  ibv_pd* parent = ibv_alloc_parent_domain(context, &attributes);
  ASSERT_NE(parent, nullptr);
  ibv_qp_init_attr init = qp_attributes(IBV_QPT_RC);
  ibv_qp* c = ibv_create_qp(parent, &init);
  ibv_qp* d = ibv_create_qp(pd, &init);
  ASSERT_NO_FATAL_FAILURE(connect(c, d));
  Request write(IBV_WR_RDMA_WRITE, mr_ours, 8);
  ASSERT_EQ(write.to(mr_theirs).post(c), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(c), 0);
  EXPECT_EQ(ibv_destroy_qp(d), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
}

// --- What the device says of itself

TEST_F(Device, TheExtendedAttributesAreTrue) {
  ibv_device_attr_ex a{};
  ASSERT_EQ(ibv_query_device_ex(context, nullptr, &a), 0);
  EXPECT_EQ(a.odp_caps.general_caps, std::uint64_t{IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT});
  EXPECT_TRUE(a.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_ATOMIC);
  EXPECT_TRUE(a.xrc_odp_caps & IBV_ODP_SUPPORT_SRQ_RECV);
  EXPECT_EQ(a.completion_timestamp_mask, ~std::uint64_t{0});
  EXPECT_EQ(a.hca_core_clock, 1000000u);  // kHz
  // FLUSH to global visibility, ATOMIC WRITE: flags of newer kernels.
  EXPECT_EQ(a.device_cap_flags_ex, a.orig_attr.device_cap_flags | 1ull << 38 | 1ull << 40);
  constexpr unsigned kSet = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID |
                            IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_N_NOTIFY_CQ |
                            IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_PORT_ACTIVE_EVENT |
                            IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
                            IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_XRC;  // docs/verbs.md
  EXPECT_EQ(a.orig_attr.device_cap_flags, kSet);
  EXPECT_EQ(a.phys_port_cnt_ex, 1u);
  EXPECT_EQ(a.tso_caps.max_tso, 0u);
  EXPECT_EQ(a.rss_caps.max_rwq_indirection_tables, 0u);
  EXPECT_EQ(a.max_wq_type_rq, 0u);
  EXPECT_EQ(a.packet_pacing_caps.qp_rate_limit_max, 100'000'000u);
  EXPECT_EQ(a.raw_packet_caps, 0u);
  EXPECT_EQ(a.tm_caps.max_num_tags, 0u);
  EXPECT_EQ(a.cq_mod_caps.max_cq_count, 65535);
  EXPECT_EQ(a.cq_mod_caps.max_cq_period, 65535);
  EXPECT_EQ(a.max_dm_size, 0u);
  EXPECT_EQ(a.pci_atomic_caps.fetch_add, 0);
}

TEST_F(Device, MemoryMayBeFlushedButIsNotPersistent) {
  constexpr int kFlushGlobal = 1 << 8,
                kFlushPersistent = 1 << 9;  // ibv_access_flags of newer headers
  ibv_mr* mr = ibv_reg_mr(pd, ours.data(), 64, kAll | kFlushGlobal);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd, ours.data(), 64, kAll | kFlushGlobal | kFlushPersistent), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace ferry::verbs::families
