#include "rnic/attributes.h"
#include "sim_pair.h"

// Objects of an RNIC: the order of their destruction, their numbers, and re-registration.
namespace ferry::rnic::testing {
namespace {

struct ObjectsTest : ::testing::Test, SimPair {
  std::vector<std::byte> memory = pattern(8000, 3);
  ibv_device_attr_ex reported{};

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open());
    ASSERT_EQ(a.context->query_device(&reported), 0);
  }
  int destroy(device::Object* object) { return a.context->destroy(object); }

  device::Srq* create_xrc_srq(device::Xrcd* xrcd) {
    device::SrqInit init;
    init.pd = a.pd;
    init.xrcd = xrcd;
    init.cq = a.cq;
    init.attributes = {4, 1, 0};
    device::Srq* srq = nullptr;
    EXPECT_EQ(a.context->create_srq(&init, &srq), 0);
    return srq;
  }
  int create_qp(const device::QpInit& wanted, device::Qp** out) {
    device::QpInit init = wanted;
    return a.context->create_qp(&init, out);
  }
};

// Programs tell by these whether there is a device, and which.
TEST_F(ObjectsTest, TheDeviceHasAVendorAndAVersion) {
  EXPECT_NE(reported.orig_attr.vendor_id, 0u);
  EXPECT_NE(reported.orig_attr.vendor_part_id, 0u);
  EXPECT_NE(reported.orig_attr.hw_ver, 0u);
  EXPECT_STRNE(reported.orig_attr.fw_ver, "");
}

TEST_F(ObjectsTest, CompletionQueuesAndDomainsOfQpsAreBusy) {
  device::Qp* qp = a.create_qp();
  EXPECT_EQ(destroy(a.pd), EBUSY);
  EXPECT_EQ(destroy(a.cq), EBUSY);
  EXPECT_EQ(destroy(qp), 0);
  EXPECT_EQ(destroy(a.cq), 0);
  EXPECT_EQ(destroy(a.pd), 0);
}

TEST_F(ObjectsTest, EachUserOfADomainKeepsIt) {
  device::Mr* mr = a.reg(memory.data(), 100);
  EXPECT_EQ(destroy(a.pd), EBUSY);
  EXPECT_EQ(destroy(mr), 0);
  for (ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    device::Mw* mw = nullptr;
    ASSERT_EQ(a.context->alloc_mw(a.pd, type, &mw), 0);
    EXPECT_EQ(destroy(a.pd), EBUSY);
    EXPECT_EQ(destroy(mw), 0);
  }
  device::Srq* srq = a.create_srq();
  EXPECT_EQ(destroy(a.pd), EBUSY);
  EXPECT_EQ(destroy(srq), 0);
  EXPECT_EQ(destroy(a.pd), 0);
}

TEST_F(ObjectsTest, XrcObjectsKeepWhatTheyUse) {
  device::Xrcd* xrcd = nullptr;
  ASSERT_EQ(a.context->open_xrcd({}, &xrcd), 0);
  device::Srq* srq = create_xrc_srq(xrcd);
  EXPECT_NE(srq->number(), 0u);
  EXPECT_EQ(destroy(xrcd), EBUSY);
  EXPECT_EQ(destroy(a.cq), EBUSY);
  EXPECT_EQ(destroy(a.pd), EBUSY);
  EXPECT_EQ(destroy(srq), 0);
  device::QpInit init;
  init.type = IBV_QPT_XRC_RECV;
  init.xrcd = xrcd;
  device::Qp* target = nullptr;
  ASSERT_EQ(create_qp(init, &target), 0);
  EXPECT_EQ(destroy(xrcd), EBUSY);
  EXPECT_EQ(destroy(target), 0);
  EXPECT_EQ(destroy(xrcd), 0);
  init = {};
  init.type = IBV_QPT_XRC_SEND;
  init.pd = a.pd;
  init.send_cq = a.cq;
  device::Qp* initiator = nullptr;
  ASSERT_EQ(create_qp(init, &initiator), 0);
  EXPECT_EQ(destroy(a.cq), EBUSY);
  EXPECT_EQ(destroy(a.pd), EBUSY);
  EXPECT_EQ(destroy(initiator), 0);
  EXPECT_EQ(destroy(a.cq), 0);
  EXPECT_EQ(destroy(a.pd), 0);
}

TEST_F(ObjectsTest, QpsNeedTheObjectsOfTheirType) {
  device::Xrcd* xrcd = nullptr;
  ASSERT_EQ(a.context->open_xrcd({}, &xrcd), 0);
  device::Srq* plain = a.create_srq();
  device::Srq* xrc = create_xrc_srq(xrcd);
  device::QpInit all;
  all.pd = a.pd;
  all.send_cq = all.recv_cq = a.cq;
  device::Qp* qp = nullptr;
  const auto with = [&](ibv_qp_type type, auto&& change) {
    device::QpInit init = all;
    init.type = type;
    change(init);
    return create_qp(init, &qp);
  };
  using Init = device::QpInit;
  EXPECT_EQ(with(IBV_QPT_RC, [](Init& i) { i.pd = nullptr; }), EINVAL);
  EXPECT_EQ(with(IBV_QPT_RC, [](Init& i) { i.send_cq = nullptr; }), EINVAL);
  EXPECT_EQ(with(IBV_QPT_RC, [](Init& i) { i.recv_cq = nullptr; }), EINVAL);
  EXPECT_EQ(with(IBV_QPT_RC, [&](Init& i) { i.xrcd = xrcd; }), EINVAL);
  EXPECT_EQ(with(IBV_QPT_RC, [&](Init& i) { i.srq = xrc; }), EINVAL);
  EXPECT_EQ(with(IBV_QPT_RC, [&](Init& i) { i.srq = plain; }), 0);
  EXPECT_EQ(with(IBV_QPT_XRC_SEND, [&](Init& i) { i.srq = plain; }), EINVAL);
  EXPECT_EQ(with(IBV_QPT_XRC_SEND, [](Init& i) { i.recv_cq = nullptr; }), 0);
  EXPECT_EQ(with(IBV_QPT_XRC_RECV, [](Init&) {}), EINVAL);
  EXPECT_EQ(with(IBV_QPT_XRC_RECV, [&](Init& i) { i.xrcd = xrcd; }), 0);
  ibv_qp_attr got{};
  ASSERT_EQ(qp->query(&got), 0);
  EXPECT_EQ(got.cap.max_send_wr, 0u);
  EXPECT_EQ(Send(IBV_WR_SEND, 1, memory.data(), 0, nullptr).post(qp), EINVAL);
  EXPECT_EQ(post_receive(qp, 1, memory.data(), 0, nullptr), EINVAL);
}

// As many as reported, and one more.
TEST_F(ObjectsTest, NumbersOfObjects) {
  const auto fill = [&](int limit, auto&& create) {
    std::vector<device::Object*> made;
    device::Object* object = nullptr;
    int error = 0;
    while ((error = create(&object)) == 0) {
      made.push_back(object);
      if (static_cast<int>(made.size()) > limit) break;
    }
    EXPECT_EQ(error, ENOMEM);
    EXPECT_EQ(static_cast<int>(made.size()), limit);
    for (device::Object* each : made) ASSERT_EQ(destroy(each), 0);
  };
  const ibv_device_attr& limits = reported.orig_attr;
  fill(limits.max_pd - 1, [&](device::Object** out) {  // the rig has one
    device::Pd* pd = nullptr;
    const int error = a.context->alloc_pd(&pd);
    *out = pd;
    return error;
  });
  fill(limits.max_cq - 1, [&](device::Object** out) {
    device::Cq* cq = nullptr;
    const int error = a.context->create_cq({1}, &cq);
    *out = cq;
    return error;
  });
  fill(limits.max_mr, [&](device::Object** out) {
    device::Mr* mr = nullptr;
    const int error = a.context->reg_mr({a.pd, memory.data(), 10, 0, 0}, &mr);
    *out = mr;
    return error;
  });
  fill(limits.max_mw, [&](device::Object** out) {
    device::Mw* mw = nullptr;
    const int error = a.context->alloc_mw(a.pd, IBV_MW_TYPE_2, &mw);
    *out = mw;
    return error;
  });
  fill(limits.max_srq, [&](device::Object** out) {
    device::SrqInit init;
    init.pd = a.pd;
    init.attributes = {1, 1, 0};
    device::Srq* srq = nullptr;
    const int error = a.context->create_srq(&init, &srq);
    *out = srq;
    return error;
  });
  ibv_ah_attr path{};
  path.is_global = 1;
  path.port_num = 1;
  ibv_gid_entry own{};
  ASSERT_EQ(a.context->query_gid(1, 0, &own), 0);
  path.grh.dgid = own.gid;
  fill(limits.max_ah, [&](device::Object** out) {
    device::Ah* ah = nullptr;
    const int error = a.context->create_ah(a.pd, path, &ah);
    *out = ah;
    return error;
  });
  fill(static_cast<int>(kMaxXrcds), [&](device::Object** out) {
    device::Xrcd* xrcd = nullptr;
    const int error = a.context->open_xrcd({}, &xrcd);
    *out = xrcd;
    return error;
  });
  fill(limits.max_qp, [&](device::Object** out) {
    device::QpInit init;
    init.pd = a.pd;
    init.send_cq = init.recv_cq = a.cq;
    init.cap = {1, 1, 1, 1, 0};
    device::Qp* qp = nullptr;
    const int error = a.context->create_qp(&init, &qp);
    *out = qp;
    return error;
  });
}

struct ReregisterTest : ObjectsTest {
  device::Mr* mr_a = nullptr;
  device::Mr* mr_b = nullptr;
  std::vector<std::byte> theirs = std::vector<std::byte>(8000);

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(ObjectsTest::SetUp());
    ASSERT_NO_FATAL_FAILURE(connect());
    mr_a = a.reg(memory.data(), memory.size());
    mr_b = b.reg(theirs.data(), 1000);
  }
  device::MrInit init(std::byte* address, std::size_t length, unsigned access = 0,
                      device::Pd* pd = nullptr) {
    return {pd, address, length, reinterpret_cast<std::uintptr_t>(address), access};
  }
  ibv_wc_status write(const void* to) {
    qp_a = qp_b = nullptr;
    connect();  // an error ruins the QP
    EXPECT_EQ(
        Send(IBV_WR_RDMA_WRITE, 1, memory.data(), 100, mr_a).remote(to, mr_b->rkey()).post(qp_a),
        0);
    run();
    return drain(a.cq).at(0).status;
  }
};

TEST_F(ReregisterTest, Translation) {
  const std::uint32_t key = mr_b->rkey();
  EXPECT_EQ(write(theirs.data() + 4000), IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(
      b.context->rereg_mr(mr_b, IBV_REREG_MR_CHANGE_TRANSLATION, init(theirs.data() + 4000, 1000)),
      0);
  EXPECT_EQ(mr_b->rkey(), key);
  EXPECT_EQ(write(theirs.data() + 4000), IBV_WC_SUCCESS);
  EXPECT_EQ(write(theirs.data()), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(std::memcmp(theirs.data() + 4000, memory.data(), 100), 0);
}

TEST_F(ReregisterTest, Access) {
  ASSERT_EQ(b.context->rereg_mr(mr_b, IBV_REREG_MR_CHANGE_ACCESS,
                                init(nullptr, 0, IBV_ACCESS_REMOTE_READ)),
            0);
  EXPECT_EQ(write(theirs.data()), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(theirs, std::vector<std::byte>(8000));
  ASSERT_EQ(b.context->rereg_mr(mr_b, IBV_REREG_MR_CHANGE_ACCESS,
                                init(nullptr, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)),
            0);
  EXPECT_EQ(write(theirs.data()), IBV_WC_SUCCESS);
}

TEST_F(ReregisterTest, Domain) {
  device::Pd* other = nullptr;
  ASSERT_EQ(b.context->alloc_pd(&other), 0);
  ASSERT_EQ(b.context->rereg_mr(mr_b, IBV_REREG_MR_CHANGE_PD, init(nullptr, 0, 0, other)), 0);
  EXPECT_EQ(b.context->destroy(other), EBUSY);
  EXPECT_EQ(write(theirs.data()), IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(b.context->rereg_mr(mr_b, IBV_REREG_MR_CHANGE_PD, init(nullptr, 0, 0, b.pd)), 0);
  EXPECT_EQ(b.context->destroy(other), 0);
  EXPECT_EQ(write(theirs.data()), IBV_WC_SUCCESS);
}

TEST_F(ReregisterTest, WhatFailsChangesNothing) {
  const auto rereg = [&](int flags, const device::MrInit& wanted) {
    return b.context->rereg_mr(mr_b, flags, wanted);
  };
  EXPECT_EQ(rereg(0, init(theirs.data(), 10)), EINVAL);
  EXPECT_EQ(rereg(1 << 3, init(theirs.data(), 10)), EINVAL);
  EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_PD, init(nullptr, 0)), EINVAL);
  EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_ACCESS, init(nullptr, 0, IBV_ACCESS_REMOTE_WRITE)), EINVAL);
  EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
                  init(reinterpret_cast<std::byte*>(8), 10, IBV_ACCESS_LOCAL_WRITE)),
            EFAULT);
  EXPECT_EQ(write(theirs.data()), IBV_WC_SUCCESS);
}

TEST_F(ReregisterTest, ZeroBasedBothWays) {
  const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  ASSERT_EQ(b.context->rereg_mr(mr_b, IBV_REREG_MR_CHANGE_ACCESS,
                                init(nullptr, 0, access | IBV_ACCESS_ZERO_BASED)),
            0);
  EXPECT_EQ(write(reinterpret_cast<void*>(900)), IBV_WC_SUCCESS);
  EXPECT_EQ(write(reinterpret_cast<void*>(901)), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(std::memcmp(theirs.data() + 900, memory.data(), 100), 0);
  ASSERT_EQ(b.context->rereg_mr(mr_b, IBV_REREG_MR_CHANGE_ACCESS, init(nullptr, 0, access)), 0);
  EXPECT_EQ(write(theirs.data()), IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace ferry::rnic::testing
