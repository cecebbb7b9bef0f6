#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <mutex>

#include "rig.h"
#include "verbs/objects.h"

namespace ferry::verbs {
namespace {

struct Domains : FullRig {
  ibv_td* td = nullptr;
  ibv_pd* parent = nullptr;
  void SetUp() override {
    FullRig::SetUp();
    ibv_td_init_attr thread{};
    td = ibv_alloc_td(context, &thread);
    ibv_parent_domain_init_attr attributes{};
    attributes.pd = pd;
    attributes.td = td;
    parent = ibv_alloc_parent_domain(context, &attributes);
    ASSERT_TRUE(td && parent);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_dealloc_pd(parent), 0);
    EXPECT_EQ(ibv_dealloc_td(td), 0);
    FullRig::TearDown();
  }
};

TEST_F(Domains, AParentDomainIsGoodWhereverItsPdIs) {
  EXPECT_NE(parent, pd);
  EXPECT_EQ(parent->context, context);
  ibv_mr* mr = ibv_reg_mr(parent, memory, 64, 0);
  ibv_mw* mw = ibv_alloc_mw(parent, IBV_MW_TYPE_2);
  ibv_qp_init_attr attributes = qp_attributes();
  ibv_qp* made = ibv_create_qp(parent, &attributes);
  ibv_srq_init_attr srq_attributes{nullptr, {4, 1, 0}};
  ibv_srq* srq = ibv_create_srq(parent, &srq_attributes);
  ibv_ah_attr ah_attributes{};
  ah_attributes.is_global = 1;
  ah_attributes.port_num = 1;
  ibv_ah* ah = ibv_create_ah(parent, &ah_attributes);
  ASSERT_TRUE(mr && mw && made && srq && ah);
  EXPECT_EQ(static_cast<device::fake::FakeMr*>(to_mr(mr)->device)->init.pd, to_pd(pd)->device);
  EXPECT_EQ(static_cast<device::fake::FakeQp*>(to_qp(made)->device)->init.pd, to_pd(pd)->device);
  EXPECT_EQ(made->pd, parent);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(made), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(Domains, ItsPdIsImportedStillWhenItIsGone) {
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = pd;
  ibv_pd* gone = ibv_alloc_parent_domain(context, &attributes);
  ASSERT_NE(gone, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(gone), 0);
  ibv_pd* same = ibv_import_pd(context, pd->handle);
  ASSERT_NE(same, nullptr);
  ibv_unimport_pd(same);
}

TEST_F(Domains, ItHoldsItsParts) {
  EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
  ibv_pd* other = ibv_alloc_pd(context);
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = other;
  ibv_pd* of_other = ibv_alloc_parent_domain(context, &attributes);  // without a thread domain
  ASSERT_NE(of_other, nullptr);
  attributes.pd = of_other;
  ibv_pd* of_that = ibv_alloc_parent_domain(context, &attributes);
  ASSERT_NE(of_that, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(of_other), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(of_that), 0);
  EXPECT_EQ(ibv_dealloc_pd(of_other), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(Domains, ACqCanBeOfOne) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 4;
  attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attributes.parent_domain = pd;  // not one
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(context, &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attributes.parent_domain = parent;
  ibv_cq_ex* ex = ibv_create_cq_ex(context, &attributes);
  ASSERT_NE(ex, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
}

TEST_F(Domains, BadArguments) {
  const auto refused = [&](auto change) {
    ibv_parent_domain_init_attr attributes{};
    attributes.pd = pd;
    change(attributes);
    errno = 0;
    EXPECT_EQ(ibv_alloc_parent_domain(context, &attributes), nullptr);
    return errno;
  };
  EXPECT_EQ(refused([](auto& a) { a.pd = nullptr; }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.comp_mask = 1 << 7; }), EOPNOTSUPP);
  EXPECT_EQ(refused([](auto& a) { a.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS; }), EINVAL);
  ibv_td_init_attr thread{1};
  errno = 0;
  EXPECT_EQ(ibv_alloc_td(context, &thread), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(FullRig, ReregistrationChangesWhatItNames) {
  ibv_mr* mr = ibv_reg_mr(pd, memory, 64, 0);
  ibv_pd* other = ibv_alloc_pd(context);
  const std::uint32_t key = mr->lkey;
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory + 64, 128, 0), 0);
  EXPECT_EQ(mr->addr, memory + 64);
  EXPECT_EQ(mr->length, 128u);
  EXPECT_NE(mr->lkey, key);  // what the device says
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS, other, nullptr, 0,
                         IBV_ACCESS_LOCAL_WRITE),
            0);
  EXPECT_EQ(mr->pd, other);
  EXPECT_EQ(mr->length, 128u);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(FullRig, AReregistrationThatFailsLeavesTheMr) {
  ibv_mr* mr = ibv_reg_mr(pd, memory, 64, 0);
  const ibv_mr before = *mr;
  const auto refused = [&](int flags, ibv_pd* to, void* address, std::size_t length, int access) {
    errno = 0;
    EXPECT_EQ(ibv_rereg_mr(mr, flags, to, address, length, access), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(std::memcmp(mr, &before, sizeof before), 0);
    return errno;
  };
  EXPECT_EQ(refused(0, nullptr, nullptr, 0, 0), EINVAL);
  EXPECT_EQ(refused(8, nullptr, nullptr, 0, 0), EINVAL);
  EXPECT_EQ(refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 8, 0), EINVAL);
  EXPECT_EQ(refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory, 0, 0), EINVAL);
  EXPECT_EQ(refused(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory, 8, 1), EINVAL);
  EXPECT_EQ(refused(IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0), EINVAL);
  EXPECT_EQ(refused(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
            EINVAL);
  log.fail_next("rereg_mr", EBUSY);
  EXPECT_EQ(refused(IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
            EBUSY);
  EXPECT_EQ(ibv_rereg_mr(nullptr, 1, nullptr, memory, 8, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(FullRig, AdviceIsCheckedAndTaken) {
  ibv_mr* mr = ibv_reg_mr(pd, memory, 64, IBV_ACCESS_ON_DEMAND);
  ibv_sge sge{0, 64, mr->lkey};
  EXPECT_EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), 0);
  EXPECT_EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1), 0);
  EXPECT_EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &sge, 1), 0);
  EXPECT_EQ(ibv_advise_mr(pd, static_cast<ibv_advise_mr_advice>(9), 0, &sge, 1), EOPNOTSUPP);
  EXPECT_EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 2, &sge, 1), EINVAL);
  EXPECT_EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nullptr, 1), EINVAL);
  EXPECT_EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 0), EINVAL);
  ibv_pd* other = ibv_alloc_pd(context);
  EXPECT_EQ(ibv_advise_mr(other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EPERM);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  sge.lkey ^= 0x8000;
  EXPECT_EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EFAULT);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// --- imports

TEST_F(FullRig, AContextIsImportedByItsCommandDescriptor) {
  const int descriptor = ::dup(context->cmd_fd);
  ibv_context* imported = ibv_import_device(descriptor);
  ASSERT_NE(imported, nullptr);
  ibv_pd* same = ibv_import_pd(imported, pd->handle);
  ASSERT_NE(same, nullptr);
  ibv_mr* mr = ibv_reg_mr(same, memory, 64, 0);
  ASSERT_NE(mr, nullptr);
  ibv_mr* same_mr = ibv_import_mr(pd, mr->handle);
  ASSERT_NE(same_mr, nullptr);
  EXPECT_EQ(same_mr->lkey, mr->lkey);
  // Whoever destroys it, the other name is good for unimport.
  EXPECT_EQ(ibv_dereg_mr(same_mr), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), EINVAL);
  ibv_unimport_mr(mr);
  ibv_unimport_pd(same);
  EXPECT_EQ(ibv_close_device(imported), 0);
  EXPECT_EQ(::fcntl(descriptor, F_GETFD), -1);  // it was the import's
  EXPECT_EQ(log.count("close"), 0u);            // and the context is there
  ibv_pd* another = ibv_alloc_pd(context);
  ASSERT_NE(another, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(another), 0);
}

TEST_F(FullRig, AnImportDoesNotWaitForTheContext) {
  std::unique_lock held(context_of(context)->mutex);
  auto imported =
      std::async(std::launch::async, [&] { return ibv_import_device(::dup(context->cmd_fd)); });
  EXPECT_EQ(imported.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  held.unlock();
  ASSERT_EQ(imported.get(), context);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(FullRig, WhatCannotBeImported) {
  const auto refused = [](int descriptor) {
    errno = 0;
    EXPECT_EQ(ibv_import_device(descriptor), nullptr);
    return errno;
  };
  EXPECT_EQ(refused(9999), EBADF);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(refused(ends[1]), EOPNOTSUPP);  // as that of a context of another process
  ::close(ends[0]);
  ::close(ends[1]);
  const int file = ::open("/dev/null", O_RDONLY);
  EXPECT_NE(refused(file), 0);  // whatever the stock library says
  ::close(file);
  errno = 0;
  EXPECT_EQ(ibv_import_pd(context, 0xffff), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_import_mr(pd, 0xffff), nullptr);
  EXPECT_EQ(errno, ENOENT);
  ibv_pd* other = ibv_alloc_pd(context);
  ibv_mr* mr = ibv_reg_mr(other, memory, 64, 0);
  EXPECT_EQ(ibv_import_mr(pd, mr->handle), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  errno = 0;
  EXPECT_EQ(ibv_import_dm(context, 1), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace ferry::verbs
