#include "sim_pair.h"

// Memory windows (IBTA vol. 1 clause 10.6.7.2): bound by b, used by a.
namespace ferry::rnic::testing {
namespace {

constexpr unsigned kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
constexpr unsigned kRemote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct WindowTest : ::testing::Test, SimPair {
  std::vector<std::byte> ours = pattern(1000, 1);
  std::vector<std::byte> theirs = std::vector<std::byte>(4000);
  device::Mr* mr_a = nullptr;
  device::Mr* mr_b = nullptr;  // bindable, without remote rights
  ibv_mr application_mr{};     // what a program would hand in
  ibv_mw application_mw{};
  const device::Mr* named_mr = nullptr;  // that application_mr stands for

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open());
    ASSERT_NO_FATAL_FAILURE(connect());
    mr_a = a.reg(ours.data(), ours.size());
    mr_b = b.reg(theirs.data(), theirs.size(), kBindable);
  }
  device::Mw* alloc(ibv_mw_type type, device::Pd* pd = nullptr) {
    device::Mw* mw = nullptr;
    EXPECT_EQ(b.context->alloc_mw(pd != nullptr ? pd : b.pd, type, &mw), 0);
    return mw;
  }
  ibv_mw_bind_info info(const device::Mr* mr, std::size_t offset, std::size_t length,
                        unsigned access) {
    application_mr.lkey = mr != nullptr ? mr->lkey() : 0;
    named_mr = mr;
    return {mr != nullptr ? &application_mr : nullptr,
            reinterpret_cast<std::uintptr_t>(theirs.data()) + offset, length, access};
  }
  ibv_wc completion_at_b() {
    run();
    const auto completions = drain(b.cq);
    EXPECT_EQ(completions.size(), 1u);
    return completions.empty() ? ibv_wc{} : completions[0];
  }
  // A bind request of type 2 with a new consumer part of the key.
  ibv_wc bind(device::Mw* mw, const ibv_mw_bind_info& what, std::uint32_t rkey) {
    application_mw.handle = mw->handle();
    ibv_send_wr wr{};
    wr.wr_id = 5;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw = {&application_mw, rkey, what};
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(qp_b->post_send(&wr, &bad), 0);
    return completion_at_b();
  }
  device::MwBind request(std::uint64_t wr_id, unsigned flags, const ibv_mw_bind_info& what) const {
    return {wr_id, flags, named_mr, what.addr, what.length, what.mw_access_flags};
  }
  ibv_wc bind_type_1(device::Mw* mw, const ibv_mw_bind_info& what, std::uint32_t* rkey) {
    EXPECT_EQ(qp_b->bind_mw(mw, request(6, IBV_SEND_SIGNALED, what), rkey), 0);
    return completion_at_b();
  }
  ibv_wc invalidate(std::uint32_t rkey) {
    Send request(IBV_WR_LOCAL_INV, 7, nullptr, 0, nullptr);
    request.wr.invalidate_rkey = rkey;
    EXPECT_EQ(request.post(qp_b), 0);
    return completion_at_b();
  }
  ibv_wc_status access(ibv_wr_opcode opcode, std::uint64_t address, std::uint32_t rkey,
                       device::Qp* from = nullptr, std::uint32_t length = 100) {
    EXPECT_EQ(Send(opcode, 1, ours.data(), length, mr_a)
                  .remote(reinterpret_cast<void*>(address), rkey)
                  .post(from != nullptr ? from : qp_a),
              0);
    run();
    const auto completions = drain(a.cq);
    EXPECT_EQ(completions.size(), 1u);
    return completions.empty() ? IBV_WC_GENERAL_ERR : completions[0].status;
  }
  std::uint64_t at(std::size_t offset) const {
    return reinterpret_cast<std::uintptr_t>(theirs.data()) + offset;
  }
  bool untouched() const { return theirs == std::vector<std::byte>(4000); }
};

TEST_F(WindowTest, Type1GivesItsPartOfARegionToThePeer) {
  device::Mw* mw = alloc(IBV_MW_TYPE_1);
  const std::uint32_t first = mw->rkey();
  std::uint32_t rkey = 0;
  // A window has no local access; programs name it all the same.
  const unsigned rights = kRemote | IBV_ACCESS_LOCAL_WRITE;
  const ibv_wc wc = bind_type_1(mw, info(mr_b, 1000, 500, rights), &rkey);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(wc.wr_id, 6u);
  EXPECT_EQ(rkey, ibv_inc_rkey(first));
  EXPECT_EQ(mw->rkey(), rkey);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(1000), rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(1400), rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(theirs.data() + 1000, ours.data(), 100), 0);
  EXPECT_EQ(access(IBV_WR_RDMA_READ, at(1000), rkey), IBV_WC_SUCCESS);
  // Any QP of the PD may use it.
  ASSERT_NO_FATAL_FAILURE(connect());
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(1000), rkey), IBV_WC_SUCCESS);
}

TEST_F(WindowTest, BoundsAndRights) {
  struct Case {
    const char* name;
    ibv_wr_opcode opcode;
    std::size_t offset;
    unsigned rights;
  };
  const Case cases[] = {
      {"before it", IBV_WR_RDMA_WRITE, 999, kRemote},
      {"behind it", IBV_WR_RDMA_WRITE, 1401, kRemote},
      {"write without right", IBV_WR_RDMA_WRITE, 1000, IBV_ACCESS_REMOTE_READ},
      {"read without right", IBV_WR_RDMA_READ, 1000, IBV_ACCESS_REMOTE_WRITE},
  };
  device::Mw* mw = alloc(IBV_MW_TYPE_1);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ASSERT_NO_FATAL_FAILURE(connect());
    std::uint32_t rkey = 0;
    bind_type_1(mw, info(mr_b, 1000, 500, c.rights), &rkey);
    EXPECT_EQ(access(c.opcode, at(c.offset), rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_TRUE(untouched());
  }
}

TEST_F(WindowTest, TheOldKeyEndsWithTheNextBind) {
  device::Mw* mw = alloc(IBV_MW_TYPE_1);
  std::uint32_t first = 0, second = 0, none = 0;
  bind_type_1(mw, info(mr_b, 0, 500, kRemote), &first);
  bind_type_1(mw, info(mr_b, 500, 500, kRemote), &second);
  EXPECT_NE(first, second);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(500), second), IBV_WC_SUCCESS);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(0), first), IBV_WC_REM_ACCESS_ERR);
  ASSERT_NO_FATAL_FAILURE(connect());
  // Length 0 unbinds.
  EXPECT_EQ(bind_type_1(mw, info(nullptr, 0, 0, 0), &none).status, IBV_WC_SUCCESS);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(500), second), IBV_WC_REM_ACCESS_ERR);
  ASSERT_NO_FATAL_FAILURE(connect());
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(500), none), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, AWindowIsNoLocalKey) {
  device::Mw* mw = alloc(IBV_MW_TYPE_1);
  std::uint32_t rkey = 0;
  bind_type_1(mw, info(mr_b, 0, 500, kRemote), &rkey);
  ibv_sge sge{at(0), 100, rkey};
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ASSERT_EQ(qp_b->post_recv(&wr, &bad), 0);
  ASSERT_EQ(Send(IBV_WR_SEND, 1, ours.data(), 100, mr_a).post(qp_a), 0);
  run();
  EXPECT_EQ(drain(b.cq).at(0).status, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(untouched());
}

TEST_F(WindowTest, Type2IsBoundToOneQp) {
  device::Mw* mw = alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = mw->rkey() ^ 0x5A;
  EXPECT_EQ(bind(mw, info(mr_b, 0, 500, kRemote), rkey).status, IBV_WC_SUCCESS);
  EXPECT_EQ(mw->rkey(), rkey);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(0), rkey), IBV_WC_SUCCESS);
  std::fill(theirs.begin(), theirs.end(), std::byte{0});
  device::Qp* const bound = qp_a;
  ASSERT_NO_FATAL_FAILURE(connect());
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(0), rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(untouched());
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(0), rkey, bound), IBV_WC_SUCCESS);
}

TEST_F(WindowTest, ZeroBasedWindowsCountFromZero) {
  device::Mw* mw = alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = ibv_inc_rkey(mw->rkey());
  ASSERT_EQ(bind(mw, info(mr_b, 2000, 500, kRemote | IBV_ACCESS_ZERO_BASED), rkey).status,
            IBV_WC_SUCCESS);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, 400, rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(theirs.data() + 2400, ours.data(), 100), 0);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, 401, rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, LocalInvalidationEndsAType2Window) {
  device::Mw* mw = alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = mw->rkey();
  ASSERT_EQ(bind(mw, info(mr_b, 0, 500, kRemote), rkey).status, IBV_WC_SUCCESS);
  const ibv_wc wc = invalidate(rkey);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_LOCAL_INV);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(0), rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(untouched());
}

TEST_F(WindowTest, ItCanBeBoundAgainAfterwards) {
  device::Mw* mw = alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = mw->rkey();
  ASSERT_EQ(bind(mw, info(mr_b, 0, 500, kRemote), rkey).status, IBV_WC_SUCCESS);
  ASSERT_EQ(invalidate(rkey).status, IBV_WC_SUCCESS);
  ASSERT_EQ(bind(mw, info(mr_b, 500, 500, kRemote), ibv_inc_rkey(rkey)).status, IBV_WC_SUCCESS);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(500), ibv_inc_rkey(rkey)), IBV_WC_SUCCESS);
}

TEST_F(WindowTest, SendWithInvalidateEndsItFromAfar) {
  device::Mw* mw = alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = ibv_inc_rkey(mw->rkey());
  ASSERT_EQ(bind(mw, info(mr_b, 0, 500, kRemote), rkey).status, IBV_WC_SUCCESS);
  device::Mr* receive_mr = b.reg(theirs.data(), theirs.size());
  ASSERT_EQ(post_receive(qp_b, 9, theirs.data() + 3000, 100, receive_mr), 0);
  Send request(IBV_WR_SEND_WITH_INV, 1, ours.data(), 50, mr_a);
  request.wr.invalidate_rkey = rkey;
  ASSERT_EQ(request.post(qp_a), 0);
  run();
  EXPECT_EQ(drain(a.cq).at(0).status, IBV_WC_SUCCESS);
  const auto at_b = drain(b.cq);
  ASSERT_EQ(at_b.size(), 1u);
  EXPECT_EQ(at_b[0].wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(at_b[0].invalidated_rkey, rkey);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(0), rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(WindowTest, OnlyTheQpOfAWindowMayEndIt) {
  device::Mw* mw = alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = mw->rkey();
  ASSERT_EQ(bind(mw, info(mr_b, 0, 500, kRemote), rkey).status, IBV_WC_SUCCESS);
  device::Qp* const bound = qp_a;
  device::Mw* type_1 = alloc(IBV_MW_TYPE_1);
  std::uint32_t key_1 = 0;
  bind_type_1(type_1, info(mr_b, 0, 500, kRemote), &key_1);
  for (std::uint32_t wrong : {rkey, rkey ^ 1, mr_b->rkey(), key_1}) {
    ASSERT_NO_FATAL_FAILURE(connect());
    EXPECT_NE(invalidate(wrong).status, IBV_WC_SUCCESS) << wrong;
    ASSERT_NO_FATAL_FAILURE(connect());
    ASSERT_EQ(post_receive(qp_b, 9, theirs.data(), 0, nullptr), 0);
    Send request(IBV_WR_SEND_WITH_INV, 1, ours.data(), 0, nullptr);
    request.wr.invalidate_rkey = wrong;
    ASSERT_EQ(request.post(qp_a), 0);
    run();
    EXPECT_EQ(drain(a.cq).at(0).status, IBV_WC_REM_ACCESS_ERR) << wrong;
    drain(b.cq);
  }
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(0), rkey, bound), IBV_WC_SUCCESS);
}

TEST_F(WindowTest, BindsThatFail) {
  device::Mr* not_bindable = b.reg(theirs.data(), theirs.size());
  device::Mr* read_only = b.reg(theirs.data(), theirs.size(), IBV_ACCESS_MW_BIND);
  device::Mr* zero_based = b.reg(theirs.data(), theirs.size(), kBindable | IBV_ACCESS_ZERO_BASED);
  device::Pd* other = nullptr;
  ASSERT_EQ(b.context->alloc_pd(&other), 0);
  device::Mr* foreign = nullptr;
  ASSERT_EQ(b.context->reg_mr({other, theirs.data(), 4000, at(0), kBindable}, &foreign), 0);
  device::Mw* mw = alloc(IBV_MW_TYPE_2);
  device::Mw* foreign_mw = alloc(IBV_MW_TYPE_2, other);
  struct Case {
    const char* name;
    device::Mw* mw;
    device::Mr* mr;
    std::size_t offset, length;
    unsigned access;
    std::uint32_t other_key;  // bits
  };
  const Case cases[] = {
      {"region without MW_BIND", mw, not_bindable, 0, 10, IBV_ACCESS_REMOTE_READ, 0},
      {"write onto a region without local write", mw, read_only, 0, 10, IBV_ACCESS_REMOTE_WRITE, 0},
      {"atomics onto a region without local write", mw, read_only, 0, 10, IBV_ACCESS_REMOTE_ATOMIC,
       0},
      {"zero-based region", mw, zero_based, 0, 10, IBV_ACCESS_REMOTE_READ, 0},
      {"region of another PD", mw, foreign, 0, 10, IBV_ACCESS_REMOTE_READ, 0},
      {"window of another PD", foreign_mw, mr_b, 0, 10, IBV_ACCESS_REMOTE_READ, 0},
      {"past the end", mw, mr_b, 3991, 10, IBV_ACCESS_REMOTE_READ, 0},
      {"no length", mw, mr_b, 0, 0, IBV_ACCESS_REMOTE_READ, 0},
      {"another index in the key", mw, mr_b, 0, 10, IBV_ACCESS_REMOTE_READ, 0x100},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ASSERT_NO_FATAL_FAILURE(connect());
    const std::uint32_t rkey = ibv_inc_rkey(c.mw->rkey()) ^ c.other_key;
    EXPECT_EQ(bind(c.mw, info(c.mr, c.offset, c.length, c.access), rkey).status,
              IBV_WC_MW_BIND_ERR);
    EXPECT_EQ(qp_b->state(), IBV_QPS_ERR);
  }
  // What was refused left the window free.
  ASSERT_NO_FATAL_FAILURE(connect());
  ASSERT_EQ(bind(mw, info(mr_b, 3990, 10, IBV_ACCESS_REMOTE_READ), mw->rkey()).status,
            IBV_WC_SUCCESS);
  EXPECT_EQ(bind(mw, info(mr_b, 0, 10, IBV_ACCESS_REMOTE_READ), ibv_inc_rkey(mw->rkey())).status,
            IBV_WC_MW_BIND_ERR)
      << "bound already";
}

TEST_F(WindowTest, BindsThatAreNotTaken) {
  device::Mw* type_1 = alloc(IBV_MW_TYPE_1);
  device::Mw* type_2 = alloc(IBV_MW_TYPE_2);
  device::Pd* other = nullptr;
  ASSERT_EQ(b.context->alloc_pd(&other), 0);
  device::Mw* foreign = alloc(IBV_MW_TYPE_1, other);
  std::uint32_t rkey = 0;
  const auto bind_1 = [&](device::Mw* mw, unsigned access, bool region = true) {
    const ibv_mw_bind_info what = info(region ? mr_b : nullptr, 0, 10, access);
    return qp_b->bind_mw(mw, request(1, 0, what), &rkey);
  };
  EXPECT_EQ(bind_1(type_2, kRemote), EINVAL);
  EXPECT_EQ(bind_1(foreign, kRemote), EINVAL);
  EXPECT_EQ(bind_1(type_1, kRemote | IBV_ACCESS_ZERO_BASED), EINVAL);
  EXPECT_EQ(bind_1(type_1, IBV_ACCESS_MW_BIND), EINVAL);
  EXPECT_EQ(bind_1(type_1, kRemote, false), EINVAL);
  application_mw.handle = type_1->handle();
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw = {&application_mw, type_1->rkey(), info(mr_b, 0, 10, kRemote)};
  EXPECT_EQ(qp_b->post_send(&wr, &bad), EINVAL);
  application_mw.handle = type_2->handle() ^ 1;
  EXPECT_EQ(qp_b->post_send(&wr, &bad), EINVAL);
}

TEST_F(WindowTest, ARegionWithWindowsIsBusy) {
  device::Mw* mw = alloc(IBV_MW_TYPE_2);
  ASSERT_EQ(bind(mw, info(mr_b, 0, 500, kRemote), mw->rkey()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.context->destroy(mr_b), EBUSY);
  EXPECT_EQ(b.context->rereg_mr(mr_b, IBV_REREG_MR_CHANGE_ACCESS, {nullptr, nullptr, 0, 0, 0}),
            EBUSY);
  ASSERT_EQ(invalidate(mw->rkey()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.context->destroy(mr_b), 0);
  EXPECT_EQ(b.context->destroy(mw), 0);
}

TEST_F(WindowTest, DestroyedQpsAndWindowsLetGo) {
  device::Mw* mw = alloc(IBV_MW_TYPE_2);
  ASSERT_EQ(bind(mw, info(mr_b, 0, 500, kRemote), mw->rkey()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.context->destroy(qp_b), 0);
  EXPECT_EQ(b.context->destroy(mw), 0);
  ASSERT_NO_FATAL_FAILURE(connect());
  mw = alloc(IBV_MW_TYPE_1);
  std::uint32_t rkey = 0;
  bind_type_1(mw, info(mr_b, 0, 500, kRemote), &rkey);
  EXPECT_EQ(b.context->destroy(mr_b), EBUSY);
  EXPECT_EQ(b.context->destroy(mw), 0);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(0), rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(b.context->destroy(mr_b), 0);
}

TEST_F(WindowTest, SendsAfterABindComeAfterIt) {
  device::Mw* mw = alloc(IBV_MW_TYPE_2);
  const std::uint32_t rkey = ibv_inc_rkey(mw->rkey());
  ASSERT_EQ(post_receive(qp_a, 1, ours.data() + 900, 4, mr_a), 0);
  application_mw.handle = mw->handle();
  ibv_send_wr wr[2]{};
  wr[0].opcode = IBV_WR_BIND_MW;
  wr[0].bind_mw = {&application_mw, rkey, info(mr_b, 0, 500, kRemote)};
  wr[0].next = &wr[1];
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(&rkey), 4, 0};
  wr[1].opcode = IBV_WR_SEND;
  wr[1].send_flags = IBV_SEND_INLINE;
  wr[1].sg_list = &sge;
  wr[1].num_sge = 1;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(qp_b->post_send(wr, &bad), 0);
  run();
  ASSERT_EQ(drain(a.cq).size(), 1u);
  std::uint32_t told = 0;
  std::memcpy(&told, ours.data() + 900, 4);
  EXPECT_EQ(access(IBV_WR_RDMA_WRITE, at(0), told), IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace ferry::rnic::testing
