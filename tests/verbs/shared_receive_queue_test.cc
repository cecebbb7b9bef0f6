#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "rig.h"
#include "verbs/objects.h"

namespace ferry::verbs {
namespace {

struct SrqRig : FullRig {
  ibv_srq* srq = nullptr;
  device::fake::FakeSrq* fake_srq = nullptr;
  void SetUp() override {
    FullRig::SetUp();
    ibv_srq_init_attr attributes{this, {5, 2, 0}};
    srq = ibv_create_srq(pd, &attributes);
    ASSERT_NE(srq, nullptr);
    EXPECT_EQ(attributes.attr.max_wr, 8u);  // what the fake grants
    fake_srq = static_cast<device::fake::FakeSrq*>(to_srq(srq)->device);
  }
  void TearDown() override {
    if (srq) {
      EXPECT_EQ(ibv_destroy_srq(srq), 0);
    }
    FullRig::TearDown();
  }
};

TEST_F(SrqRig, HasWhatItWasMadeOf) {
  EXPECT_EQ(srq->context, context);
  EXPECT_EQ(srq->pd, pd);
  EXPECT_EQ(srq->srq_context, this);
  std::uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(srq, &number), EINVAL);  // XRC SRQs alone have numbers
}

TEST_F(SrqRig, PostsGoToTheDevice) {
  ibv_sge sge{0x1000, 8, 1};
  ibv_recv_wr second{2, nullptr, &sge, 1}, first{1, &second, &sge, 1};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(srq, &first, &bad), 0);
  ASSERT_EQ(fake_srq->received().size(), 2u);
  EXPECT_EQ(fake_srq->received()[1].wr_id, 2u);
  log.fail_next("post_srq_recv", ENOMEM);
  EXPECT_EQ(ibv_post_srq_recv(srq, &first, &bad), ENOMEM);
  EXPECT_EQ(bad, &first);
}

TEST_F(SrqRig, ModifyAndQuery) {
  ibv_srq_attr attributes{16, 0, 4};
  EXPECT_EQ(ibv_modify_srq(srq, &attributes, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(ibv_query_srq(srq, &attributes), 0);
  EXPECT_EQ(attributes.max_wr, 8u);  // was not asked for
  EXPECT_EQ(attributes.srq_limit, 4u);
  attributes = {16, 0, 0};
  EXPECT_EQ(ibv_modify_srq(srq, &attributes, IBV_SRQ_MAX_WR), 0);
  ASSERT_EQ(ibv_query_srq(srq, &attributes), 0);
  EXPECT_EQ(attributes.max_wr, 16u);
  EXPECT_EQ(ibv_modify_srq(srq, &attributes, 1 << 2), EINVAL);
  EXPECT_EQ(ibv_modify_srq(srq, nullptr, 0), EINVAL);
  EXPECT_EQ(ibv_query_srq(nullptr, &attributes), EINVAL);
  log.fail_next("modify_srq", EINVAL);
  EXPECT_EQ(ibv_modify_srq(srq, &attributes, IBV_SRQ_MAX_WR), EINVAL);
}

TEST_F(SrqRig, AQpOfItIsMadeAndShown) {
  ibv_qp_init_attr attributes = qp_attributes();
  attributes.srq = srq;
  ibv_qp* sharing = ibv_create_qp(pd, &attributes);
  ASSERT_NE(sharing, nullptr);
  EXPECT_EQ(sharing->srq, srq);
  EXPECT_EQ(static_cast<device::fake::FakeQp*>(to_qp(sharing)->device)->init.srq, fake_srq);
  ibv_qp_attr state{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(sharing, &state, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(init.srq, srq);
  EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(sharing), 0);
}

TEST_F(SrqRig, ItsEventsNameItAndDestructionWaitsForThem) {
  fake_srq->reach_limit();
  pollfd p{context->async_fd, POLLIN, 0};
  EXPECT_EQ(::poll(&p, 1, 0), 1);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, srq);
  fake_srq->reach_limit();  // this one is never taken
  std::atomic<bool> destroyed = false;
  std::thread destroyer([&] {
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    destroyed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(destroyed);
  ibv_ack_async_event(&event);
  destroyer.join();
  srq = nullptr;
  EXPECT_EQ(::poll(&p, 1, 0), 0);  // nothing is left of the one that was not taken
}

TEST_F(FullRig, BadArgumentsOfAnSrq) {
  EXPECT_EQ(ibv_create_srq(nullptr, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_srq_init_attr attributes{};
  log.fail_next("create_srq", ENOMEM);
  errno = 0;
  EXPECT_EQ(ibv_create_srq(pd, &attributes), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(ibv_destroy_srq(nullptr), EINVAL);
  const auto refused = [&](auto change) {
    ibv_srq_init_attr_ex extended{};
    extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                         IBV_SRQ_INIT_ATTR_CQ;
    extended.srq_type = IBV_SRQT_XRC;
    extended.pd = pd;
    extended.cq = cq;
    change(extended);
    errno = 0;
    EXPECT_EQ(ibv_create_srq_ex(context, &extended), nullptr);
    return errno;
  };
  EXPECT_EQ(refused([](auto&) {}), EINVAL);  // no XRC domain
  EXPECT_EQ(refused([](auto& a) { a.srq_type = IBV_SRQT_TM; }), EOPNOTSUPP);
  EXPECT_EQ(refused([](auto& a) { a.srq_type = static_cast<ibv_srq_type>(9); }), EINVAL);
  EXPECT_EQ(refused([](auto& a) { a.comp_mask |= IBV_SRQ_INIT_ATTR_TM; }), EOPNOTSUPP);
  EXPECT_EQ(refused([](auto& a) { a.comp_mask &= ~std::uint32_t{IBV_SRQ_INIT_ATTR_PD}; }), EINVAL);
}

}  // namespace
}  // namespace ferry::verbs
