#include "rig.h"
#include "verbs/objects.h"

namespace ferry::verbs {
namespace {

struct Windows : FullRig {
  ibv_mr* mr = nullptr;
  ibv_mw* mw = nullptr;
  void SetUp() override {
    FullRig::SetUp();
    mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    ASSERT_TRUE(mr && mw);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    FullRig::TearDown();
  }
};

TEST_F(Windows, HasWhatItWasMadeOf) {
  EXPECT_EQ(mw->context, context);
  EXPECT_EQ(mw->pd, pd);
  EXPECT_EQ(mw->type, IBV_MW_TYPE_1);
  EXPECT_EQ(mw->rkey, to_mw(mw)->device->rkey());
  EXPECT_EQ(mw->handle, to_mw(mw)->device->handle());  // by which requests name it
}

TEST_F(Windows, ABindGivesItsNewKey) {
  const std::uint32_t before = mw->rkey;
  ibv_mw_bind bind{7, IBV_SEND_SIGNALED, {mr, 0x1000, 64, IBV_ACCESS_REMOTE_READ}};
  EXPECT_EQ(ibv_bind_mw(qp, mw, &bind), 0);
  EXPECT_NE(mw->rkey, before);
  EXPECT_NE(log.last("bind_mw").find("length=64"), std::string::npos);
  const std::uint32_t bound = mw->rkey;
  log.fail_next("bind_mw", ENOMEM);
  EXPECT_EQ(ibv_bind_mw(qp, mw, &bind), ENOMEM);
  EXPECT_EQ(mw->rkey, bound);
}

TEST_F(Windows, BadArguments) {
  ibv_mw_bind bind{7, 0, {mr, 0x1000, 64, IBV_ACCESS_REMOTE_READ}};
  EXPECT_EQ(ibv_bind_mw(nullptr, mw, &bind), EINVAL);
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(pd, static_cast<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);
  log.fail_next("alloc_mw", ENOMEM);
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(pd, IBV_MW_TYPE_2), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ibv_mw* second = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(ibv_bind_mw(qp, second, &bind), EINVAL);  // bound by a request
  EXPECT_EQ(ibv_dealloc_mw(second), 0);
}

TEST_F(Windows, ItsPdIsBusy) {
  ibv_pd* other = ibv_alloc_pd(context);
  ibv_mw* window = ibv_alloc_mw(other, IBV_MW_TYPE_2);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

}  // namespace
}  // namespace ferry::verbs
