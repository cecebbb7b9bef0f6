#include <cstring>

#include "rig.h"
#include "verbs/objects.h"

namespace ferry::verbs {
namespace {

TEST_F(FullRig, AQpHasWhatItWasMadeOf) {
  EXPECT_EQ(qp->context, context);
  EXPECT_EQ(qp->pd, pd);
  EXPECT_EQ(qp->send_cq, cq);
  EXPECT_EQ(qp->recv_cq, cq);
  EXPECT_EQ(qp->qp_num, fake_qp->qpn());
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  EXPECT_EQ(qp->qp_type, IBV_QPT_RC);
}

TEST_F(FullRig, BadArgumentsOfAQp) {
  const auto refused = [&](auto change) {
    ibv_qp_init_attr attributes = qp_attributes();
    change(attributes);
    errno = 0;
    EXPECT_EQ(ibv_create_qp(pd, &attributes), nullptr);
    return errno;
  };
  EXPECT_EQ(refused([](auto& a) { a.send_cq = nullptr; }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.recv_cq = nullptr; }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.qp_type = IBV_QPT_RAW_PACKET; }), EOPNOTSUPP);
  EXPECT_EQ(refused([](auto& a) { a.qp_type = IBV_QPT_DRIVER; }), EOPNOTSUPP);
  EXPECT_EQ(refused([](auto& a) { a.qp_type = static_cast<ibv_qp_type>(7); }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.qp_type = IBV_QPT_XRC_RECV; }), EINVAL);  // no XRC domain
  ibv_context* other = ibv_open_device(context->device);
  ibv_cq* foreign = ibv_create_cq(other, 4, nullptr, nullptr, 0);
  EXPECT_EQ(refused([&](auto& a) { a.recv_cq = foreign; }), EINVAL);
  EXPECT_EQ(ibv_destroy_cq(foreign), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
  log.fail_next("create_qp", ENOMEM);
  EXPECT_EQ(refused([](auto&) {}), ENOMEM);
  EXPECT_EQ(ibv_create_qp(nullptr, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_destroy_qp(nullptr), EINVAL);
}

TEST_F(FullRig, ModifyGoesToTheDeviceAndItsErrorComesBack) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
  log.fail_next("modify", EINVAL);
  attributes.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
  EXPECT_EQ(ibv_modify_qp(nullptr, &attributes, 0), EINVAL);
  EXPECT_EQ(ibv_modify_qp(qp, nullptr, 0), EINVAL);
}

TEST_F(FullRig, QueryGivesWhatTheQpWasMadeOf) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RESET);
  EXPECT_EQ(init.send_cq, cq);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_GE(init.cap.max_send_wr, 16u);
  EXPECT_EQ(ibv_query_qp(qp, nullptr, 0, &init), EINVAL);
}

TEST_F(FullRig, PostsGoToTheDevice) {
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory), 8, 1};
  ibv_send_wr wr{};
  wr.wr_id = 9;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  ASSERT_EQ(fake_qp->sent().size(), 1u);
  EXPECT_EQ(fake_qp->sent()[0].wr.wr_id, 9u);
  ibv_recv_wr receive{};
  receive.wr_id = 10;
  ibv_recv_wr* bad_receive = nullptr;
  EXPECT_EQ(ibv_post_recv(qp, &receive, &bad_receive), 0);
  EXPECT_EQ(fake_qp->received().at(0).wr_id, 10u);
  log.fail_next("post_send", ENOMEM);
  EXPECT_EQ(ibv_post_send(qp, &wr, &bad), ENOMEM);
  EXPECT_EQ(bad, &wr);
}

// As libibverbs answers for devices without enhanced connection establishment.
TEST_F(FullRig, NoVendorsOptionsAreTakenWhenConnecting) {
  ibv_ece ece{1, 2, 0};
  EXPECT_EQ(ibv_query_ece(qp, &ece), EOPNOTSUPP);
  EXPECT_EQ(ibv_set_ece(qp, &ece), EOPNOTSUPP);
  EXPECT_EQ(ibv_set_ece(qp, nullptr), EINVAL);
  EXPECT_EQ(ibv_query_ece(nullptr, &ece), EINVAL);
  EXPECT_EQ(ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0), 0);
}

TEST_F(FullRig, MulticastIsForDatagrams) {
  ibv_gid group{};
  group.raw[0] = 0xff;
  group.raw[15] = 0x42;
  EXPECT_EQ(ibv_attach_mcast(qp, &group, 0), EINVAL);
  EXPECT_EQ(ibv_detach_mcast(qp, &group, 0), EINVAL);
  ibv_qp_init_attr attributes = qp_attributes();
  attributes.qp_type = IBV_QPT_UD;
  ibv_qp* datagrams = ibv_create_qp(pd, &attributes);
  ASSERT_NE(datagrams, nullptr);
  EXPECT_EQ(ibv_attach_mcast(datagrams, &group, 7), 0);
  EXPECT_NE(log.last("attach_mcast").find("gid=ff..42 lid=7"), std::string::npos);
  EXPECT_EQ(ibv_detach_mcast(datagrams, &group, 7), 0);
  log.fail_next("attach_mcast", ENOMEM);
  EXPECT_EQ(ibv_attach_mcast(datagrams, &group, 7), ENOMEM);
  EXPECT_EQ(ibv_attach_mcast(datagrams, nullptr, 7), EINVAL);
  EXPECT_EQ(ibv_attach_mcast(nullptr, &group, 7), EINVAL);
  EXPECT_EQ(ibv_destroy_qp(datagrams), 0);
}

struct Extended : FullRig {
  ibv_qp_ex* ex = nullptr;
  device::fake::FakeQp* fake_ex = nullptr;

  ibv_qp_init_attr_ex extended_attributes(std::uint64_t operations) const {
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.cap = {16, 16, 4, 4, 64};
    attributes.qp_type = IBV_QPT_RC;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.pd = pd;
    attributes.send_ops_flags = operations;
    return attributes;
  }
  void SetUp() override {
    FullRig::SetUp();
    auto attributes = extended_attributes(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                          IBV_QP_EX_WITH_RDMA_READ);
    ibv_qp* made = ibv_create_qp_ex(context, &attributes);
    ASSERT_NE(made, nullptr);
    ex = ibv_qp_to_qp_ex(made);
    ASSERT_NE(ex, nullptr);
    fake_ex = static_cast<device::fake::FakeQp*>(to_qp(made)->device);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_destroy_qp(&ex->qp_base), 0);
    FullRig::TearDown();
  }
};

TEST_F(Extended, BuildsAListOfRequests) {
  ibv_wr_start(ex);
  ex->wr_id = 1;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(ex);
  ibv_wr_set_sge(ex, 7, 0x1000, 64);
  ex->wr_id = 2;
  ex->wr_flags = 0;
  ibv_wr_rdma_write_imm(ex, 0x55, 0x2000, 0x1234);
  const ibv_sge list[] = {{0x3000, 10, 8}, {0x4000, 20, 9}};
  ibv_wr_set_sge_list(ex, 2, list);
  ex->wr_id = 3;
  ibv_wr_send(ex);
  char text[] = "inline";
  ibv_wr_set_inline_data(ex, text, 6);
  text[0] = 'X';  // it was copied already
  EXPECT_EQ(fake_ex->sent().size(), 0u);
  ASSERT_EQ(ibv_wr_complete(ex), 0);

  const auto sent = fake_ex->sent();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].wr.wr_id, 1u);
  EXPECT_EQ(sent[0].wr.send_flags, unsigned{IBV_SEND_SIGNALED});
  EXPECT_EQ(sent[0].sges.at(0).addr, 0x1000u);
  EXPECT_EQ(sent[1].wr.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
  EXPECT_EQ(sent[1].wr.imm_data, 0x1234u);
  EXPECT_EQ(sent[1].wr.wr.rdma.rkey, 0x55u);
  EXPECT_EQ(sent[1].wr.wr.rdma.remote_addr, 0x2000u);
  ASSERT_EQ(sent[1].sges.size(), 2u);
  EXPECT_EQ(sent[1].sges[1].length, 20u);
  EXPECT_EQ(sent[2].wr.send_flags, unsigned{IBV_SEND_INLINE});
  ASSERT_EQ(sent[2].inline_data.size(), 6u);
  EXPECT_EQ(std::memcmp(sent[2].inline_data.data(), "inline", 6), 0);
}

TEST_F(Extended, AbortPostsNothing) {
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_abort(ex);
  ibv_wr_start(ex);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  EXPECT_TRUE(fake_ex->sent().empty());
}

TEST_F(Extended, ErrorsComeOutOfComplete) {
  ibv_wr_start(ex);
  ibv_wr_set_sge(ex, 1, 2, 3);  // of no request
  EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  log.fail_next("post_all", ENOMEM);
  EXPECT_EQ(ibv_wr_complete(ex), ENOMEM);
  ibv_wr_start(ex);  // and the next one is clean
  ibv_wr_send(ex);
  EXPECT_EQ(ibv_wr_complete(ex), 0);
}

TEST_F(Extended, OperationsThatAQpWasNotMadeForAreRefused) {
  const auto refused = [&](auto&& build) {
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    build();
    const int error = ibv_wr_complete(ex);
    EXPECT_EQ(fake_ex->sent().size(), 0u);
    return error;
  };
  EXPECT_EQ(refused([&] { ibv_wr_atomic_cmp_swp(ex, 1, 2, 3, 4); }), EOPNOTSUPP);
  EXPECT_EQ(refused([&] { ibv_wr_send_tso(ex, memory, 4, 1000); }), EOPNOTSUPP);
  EXPECT_EQ(refused([&] { ibv_wr_local_inv(ex, 1); }), EOPNOTSUPP);
  // And setters of other types of QP.
  EXPECT_EQ(refused([&] { ibv_wr_set_ud_addr(ex, nullptr, 1, 2); }), EINVAL);
  EXPECT_EQ(refused([&] { ibv_wr_set_xrc_srqn(ex, 1); }), EINVAL);
}

TEST_F(Extended, ALaterSetterReplacesAnEarlierOne) {
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  const ibv_sge list[] = {{0x3000, 10, 8}, {0x4000, 20, 9}};
  ibv_wr_set_sge_list(ex, 2, list);
  ibv_wr_set_sge(ex, 7, 0x1000, 64);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ASSERT_EQ(fake_ex->sent().at(0).sges.size(), 1u);
  EXPECT_EQ(fake_ex->sent()[0].sges[0].addr, 0x1000u);
}

TEST_F(Extended, OperationsOfEachType) {
  const std::uint64_t kSend = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  const std::uint64_t kWrite = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  const std::uint64_t kWindows = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
  const std::uint64_t kReliable = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                                  IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_WRITE;
  const struct {
    ibv_qp_type type;
    std::uint64_t operations;
  } types[] = {{IBV_QPT_RC, kSend | kWrite | kWindows | kReliable},
               {IBV_QPT_XRC_SEND, kSend | kWrite | kWindows | kReliable},
               {IBV_QPT_UC, kSend | kWrite | kWindows},
               {IBV_QPT_UD, kSend}};
  for (const auto& [type, operations] : types) {
    for (int bit = 0; bit < 64; ++bit) {
      auto attributes = extended_attributes(std::uint64_t{1} << bit);
      attributes.qp_type = type;
      errno = 0;
      ibv_qp* made = ibv_create_qp_ex(context, &attributes);
      if (operations >> bit & 1) {
        ASSERT_NE(made, nullptr) << type << " " << bit;
        EXPECT_NE(ibv_qp_to_qp_ex(made), nullptr);
        EXPECT_EQ(ibv_destroy_qp(made), 0);
      } else {
        EXPECT_EQ(made, nullptr) << type << " " << bit;
        EXPECT_EQ(errno, EOPNOTSUPP);
      }
    }
  }
}

TEST_F(Extended, EveryBuilder) {
  auto attributes = extended_attributes(
      IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
      IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
      IBV_QP_EX_WITH_RDMA_READ);
  attributes.cap.max_inline_data = 0;
  ibv_qp* made = ibv_create_qp_ex(context, &attributes);
  ASSERT_NE(made, nullptr);
  EXPECT_GE(attributes.cap.max_inline_data, 8u);  // what an ATOMIC WRITE takes
  ibv_qp_ex* all = ibv_qp_to_qp_ex(made);
  ibv_mw* window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr);
  std::uint64_t value = 0x1122334455667788;
  ibv_wr_start(all);
  ibv_wr_send_inv(all, 0x51);
  ibv_wr_atomic_cmp_swp(all, 0x52, 0x1000, 3, 4);
  ibv_wr_atomic_fetch_add(all, 0x53, 0x2000, 5);
  ibv_wr_local_inv(all, 0x54);
  const ibv_mw_bind_info info{nullptr, 0x3000, 64, IBV_ACCESS_REMOTE_READ};
  ibv_wr_bind_mw(all, window, 0x55, &info);
  ibv_wr_atomic_write(all, 0x56, 0x4000, &value);
  value = 0;  // it was copied already
  ibv_wr_send_imm(all, 0x57);
  ibv_wr_rdma_write(all, 0x58, 0x5000);
  ibv_wr_rdma_read(all, 0x59, 0x6000);
  ASSERT_EQ(ibv_wr_complete(all), 0);
  const auto sent = static_cast<device::fake::FakeQp*>(to_qp(made)->device)->sent();
  ASSERT_EQ(sent.size(), 9u);
  EXPECT_EQ(sent[0].wr.opcode, IBV_WR_SEND_WITH_INV);
  EXPECT_EQ(sent[0].wr.invalidate_rkey, 0x51u);
  EXPECT_EQ(sent[1].wr.opcode, IBV_WR_ATOMIC_CMP_AND_SWP);
  EXPECT_EQ(sent[1].wr.wr.atomic.rkey, 0x52u);
  EXPECT_EQ(sent[1].wr.wr.atomic.remote_addr, 0x1000u);
  EXPECT_EQ(sent[1].wr.wr.atomic.compare_add, 3u);
  EXPECT_EQ(sent[1].wr.wr.atomic.swap, 4u);
  EXPECT_EQ(sent[2].wr.opcode, IBV_WR_ATOMIC_FETCH_AND_ADD);
  EXPECT_EQ(sent[2].wr.wr.atomic.compare_add, 5u);
  EXPECT_EQ(sent[3].wr.opcode, IBV_WR_LOCAL_INV);
  EXPECT_EQ(sent[3].wr.invalidate_rkey, 0x54u);
  EXPECT_EQ(sent[4].wr.opcode, IBV_WR_BIND_MW);
  EXPECT_EQ(sent[4].wr.bind_mw.mw, window);
  EXPECT_EQ(sent[4].wr.bind_mw.rkey, 0x55u);
  EXPECT_EQ(sent[4].wr.bind_mw.bind_info.addr, 0x3000u);
  EXPECT_EQ(sent[5].wr.opcode, IBV_WR_ATOMIC_WRITE);
  ASSERT_EQ(sent[5].inline_data.size(), 8u);
  EXPECT_EQ(static_cast<unsigned>(sent[5].inline_data[0]), 0x88u);
  EXPECT_EQ(sent[6].wr.imm_data, 0x57u);
  EXPECT_EQ(sent[7].wr.wr.rdma.remote_addr, 0x5000u);
  EXPECT_EQ(sent[8].wr.wr.rdma.rkey, 0x59u);
  ibv_wr_start(all);
  ibv_wr_bind_mw(all, nullptr, 0x55, &info);
  EXPECT_EQ(ibv_wr_complete(all), EINVAL);
  EXPECT_EQ(ibv_destroy_qp(made), 0);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
}

TEST_F(Extended, WhatOnlySomeTypesAddress) {
  auto attributes = extended_attributes(IBV_QP_EX_WITH_SEND);
  attributes.qp_type = IBV_QPT_UD;
  ibv_qp* datagrams = ibv_create_qp_ex(context, &attributes);
  ASSERT_NE(datagrams, nullptr);
  ibv_qp_ex* to = ibv_qp_to_qp_ex(datagrams);
  ibv_ah ah{};
  ibv_wr_start(to);
  ibv_wr_send(to);
  ibv_wr_set_ud_addr(to, &ah, 0x1234, 0x5678);
  ASSERT_EQ(ibv_wr_complete(to), 0);
  const auto sent = static_cast<device::fake::FakeQp*>(to_qp(datagrams)->device)->sent();
  EXPECT_EQ(sent.at(0).wr.wr.ud.ah, &ah);
  EXPECT_EQ(sent[0].wr.wr.ud.remote_qpn, 0x1234u);
  EXPECT_EQ(sent[0].wr.wr.ud.remote_qkey, 0x5678u);
  EXPECT_EQ(ibv_destroy_qp(datagrams), 0);

  attributes = extended_attributes(IBV_QP_EX_WITH_SEND);
  attributes.qp_type = IBV_QPT_XRC_SEND;
  ibv_qp* initiator = ibv_create_qp_ex(context, &attributes);
  ASSERT_NE(initiator, nullptr);
  to = ibv_qp_to_qp_ex(initiator);
  ibv_wr_start(to);
  ibv_wr_send(to);
  ibv_wr_set_xrc_srqn(to, 0x99);
  ASSERT_EQ(ibv_wr_complete(to), 0);
  EXPECT_EQ(static_cast<device::fake::FakeQp*>(to_qp(initiator)->device)
                ->sent()
                .at(0)
                .wr.qp_type.xrc.remote_srqn,
            0x99u);
  EXPECT_EQ(ibv_destroy_qp(initiator), 0);
}

TEST_F(Extended, BadArguments) {
  const auto refused = [&](auto change) {
    auto attributes = extended_attributes(IBV_QP_EX_WITH_SEND);
    change(attributes);
    errno = 0;
    EXPECT_EQ(ibv_create_qp_ex(context, &attributes), nullptr);
    return errno;
  };
  EXPECT_EQ(refused([](auto& a) { a.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS; }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.comp_mask |= IBV_QP_INIT_ATTR_RX_HASH; }), EOPNOTSUPP);
  EXPECT_EQ(refused([](auto& a) { a.comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE; }), EOPNOTSUPP);
  EXPECT_EQ(refused([](auto& a) { a.comp_mask |= 1u << 20; }), EOPNOTSUPP);
  EXPECT_EQ(refused([](auto& a) {
              a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
              a.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING;
            }),
            EOPNOTSUPP);
  EXPECT_EQ(refused([](auto& a) {
              a.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
              a.max_tso_header = 64;
            }),
            EOPNOTSUPP);
  auto attributes = extended_attributes(IBV_QP_EX_WITH_SEND);
  attributes.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
  ibv_qp* made = ibv_create_qp_ex(context, &attributes);  // nothing is asked for
  ASSERT_NE(made, nullptr);
  const auto blocks = [&] {
    return static_cast<device::fake::FakeQp*>(to_qp(made)->device)->init.block_multicast_loopback;
  };
  EXPECT_FALSE(blocks());
  EXPECT_EQ(ibv_destroy_qp(made), 0);
  attributes.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  made = ibv_create_qp_ex(context, &attributes);
  ASSERT_NE(made, nullptr);
  EXPECT_TRUE(blocks());
  EXPECT_EQ(ibv_destroy_qp(made), 0);
}

TEST_F(FullRig, ARateLimitIsPassedOn) {
  ibv_qp_rate_limit_attr limit{1000, 64, 32, 0};
  EXPECT_EQ(ibv_modify_qp_rate_limit(qp, &limit), 0);
  EXPECT_NE(log.last("limit_rate").find("rate=1000 burst=64"), std::string::npos);
  log.fail_next("limit_rate", EINVAL);
  EXPECT_EQ(ibv_modify_qp_rate_limit(qp, &limit), EINVAL);
  EXPECT_EQ(ibv_modify_qp_rate_limit(qp, nullptr), EINVAL);
}

}  // namespace
}  // namespace ferry::verbs
