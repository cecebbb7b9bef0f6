#include "rig.h"
#include "verbs/objects.h"

namespace ferry::verbs {
namespace {

TEST_F(FullRig, AnMrHasWhatItWasMadeOf) {
  ibv_mr* mr =
      ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->context, context);
  EXPECT_EQ(mr->pd, pd);
  EXPECT_EQ(mr->addr, memory);
  EXPECT_EQ(mr->length, sizeof memory);
  EXPECT_EQ(mr->rkey, mr->lkey + 1);  // the fake's
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(FullRig, TheIovaIsPassedOn) {
  ibv_mr* mr = ibv_reg_mr_iova2(pd, memory, 64, 0x1000, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  mr = ibv_reg_mr_iova(pd, memory, 64, 0x1000, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(FullRig, AccessRightsAreChecked) {
  const auto refused = [&](int access) {
    errno = 0;
    EXPECT_EQ(ibv_reg_mr(pd, memory, 64, access), nullptr);
    return errno;
  };
  EXPECT_EQ(refused(IBV_ACCESS_REMOTE_WRITE), EINVAL);  // not without local write
  EXPECT_EQ(refused(IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
  EXPECT_EQ(refused(1 << 10), EOPNOTSUPP);  // of a newer header, or of none
  ibv_mr* mr = ibv_reg_mr(pd, memory, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  EXPECT_NE(mr, nullptr);  // optional: ignored
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// IBV_ACCESS_FLUSH_GLOBAL and _PERSISTENT of newer headers: the device says what it can.
TEST_F(FullRig, RightsToFlushArePassedOn) {
  for (const unsigned flush : {device::kFlushGlobal, device::kFlushPersistent}) {
    ibv_mr* mr = ibv_reg_mr(pd, memory, 64, static_cast<int>(flush));
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(static_cast<device::fake::FakeMr*>(to_mr(mr)->device)->init.access, flush);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
}

TEST_F(FullRig, ANullMrHasAnLkey) {
  ibv_mr* mr = ibv_alloc_null_mr(pd);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->context, context);
  EXPECT_EQ(mr->pd, pd);
  EXPECT_EQ(mr->addr, nullptr);
  EXPECT_EQ(mr->length, 0u);
  EXPECT_NE(mr->lkey, 0u);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  log.fail_next("alloc_null_mr", ENOMEM);
  errno = 0;
  EXPECT_EQ(ibv_alloc_null_mr(pd), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(FullRig, TheDevicesErrorBecomesErrno) {
  log.fail_next("reg_mr", ENOMEM);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd, memory, 64, 0), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  log.fail_next("alloc_pd", ENOMEM);
  errno = 0;
  EXPECT_EQ(ibv_alloc_pd(context), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(FullRig, AUsedPdIsBusy) {
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);  // the QP's
  ibv_pd* other = ibv_alloc_pd(context);
  ibv_mr* mr = ibv_reg_mr(other, memory, 64, 0);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ibv_ah_attr attributes{};
  attributes.is_global = 1;
  attributes.port_num = 1;
  ibv_ah* ah = ibv_create_ah(other, &attributes);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(FullRig, AddressHandlesNeedAGidOfOurs) {
  ibv_ah_attr attributes{};
  attributes.port_num = 1;
  EXPECT_EQ(ibv_create_ah(pd, &attributes), nullptr);  // no GRH
  EXPECT_EQ(errno, EINVAL);
  attributes.is_global = 1;
  attributes.grh.sgid_index = 9;
  EXPECT_EQ(ibv_create_ah(pd, &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Memory, NullsAreErrors) {
  EXPECT_EQ(ibv_alloc_pd(nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(nullptr), EINVAL);
  EXPECT_EQ(ibv_reg_mr(nullptr, nullptr, 0, 0), nullptr);
  EXPECT_EQ(ibv_dereg_mr(nullptr), EINVAL);
  EXPECT_EQ(ibv_destroy_ah(nullptr), EINVAL);
}

}  // namespace
}  // namespace ferry::verbs
