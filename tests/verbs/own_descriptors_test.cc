// A device with channels and a descriptor for its events, as the kernel's have (src/hca): the
// application gets these descriptors, and each event is noted before the device is told so.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "rig.h"
#include "verbs/objects.h"

namespace ferry::verbs {
namespace {

struct OwnDescriptors : FullRig {
  void SetUp() override {
    set_own_descriptors(true);
    FullRig::SetUp();
    set_own_descriptors(false);
  }

  static bool readable(int descriptor) {
    pollfd one{descriptor, POLLIN, 0};
    return ::poll(&one, 1, 0) == 1;
  }
  std::size_t position(const std::string& function) const {
    const auto calls = log.calls();
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].function == function) return i;
    }
    return calls.size();
  }
};

TEST_F(OwnDescriptors, AreTheApplications) {
  EXPECT_EQ(context->async_fd, fake->asynchronous_descriptor());
  EXPECT_EQ(channel->fd, to_channel(channel)->device->descriptor());
}

TEST_F(OwnDescriptors, ACompletionEventIsNotedBeforeTheDeviceHearsSo) {
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  EXPECT_FALSE(readable(channel->fd));
  fake_cq->push({});
  EXPECT_TRUE(readable(channel->fd));
  ibv_cq* raised = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel, &raised, &cq_context), 0);
  EXPECT_EQ(raised, cq);
  EXPECT_EQ(cq_context, this);
  EXPECT_EQ(log.count("acknowledge_cq"), 1u);
  EXPECT_FALSE(readable(channel->fd));
  EXPECT_EQ(ibv_get_cq_event(channel, &raised, &cq_context), -1);
  EXPECT_EQ(errno, EAGAIN);

  // The application has an event that it did not acknowledge: the CQ waits for that.
  ASSERT_EQ(ibv_destroy_qp(qp), 0);
  qp = nullptr;
  std::thread later([&] { ibv_ack_cq_events(cq, 1); });
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  later.join();
  cq = nullptr;
}

TEST_F(OwnDescriptors, TheChannelEndsWithItsStruct) {
  EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);
  log.fail_next("destroy", EBUSY);
  ibv_comp_channel* other = ibv_create_comp_channel(context);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(ibv_destroy_comp_channel(other), EBUSY) << "the device keeps it";
  EXPECT_EQ(ibv_destroy_comp_channel(other), 0);
  log.fail_next("create_channel", EMFILE);
  EXPECT_EQ(ibv_create_comp_channel(context), nullptr);
  EXPECT_EQ(errno, EMFILE);
}

TEST_F(OwnDescriptors, AsynchronousEventsComeFromTheDevice) {
  ibv_async_event event{};
  EXPECT_EQ(ibv_get_async_event(context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  fake->events->push({IBV_EVENT_PORT_ERR, nullptr, 2});
  EXPECT_TRUE(readable(context->async_fd));
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event.element.port_num, 2);
  ibv_ack_async_event(&event);

  fake->events->push({IBV_EVENT_QP_FATAL, fake_qp});
  fake->events->push({IBV_EVENT_CQ_ERR, fake_cq});
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.element.qp, qp);
  EXPECT_EQ(log.last("acknowledge"), std::to_string(IBV_EVENT_QP_FATAL));
  ibv_ack_async_event(&event);
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.element.cq, cq);
  ibv_ack_async_event(&event);
}

TEST_F(OwnDescriptors, AnEventOfAnObjectThatTheApplicationDoesNotKnowIsPassedOver) {
  device::fake::FakeQp unknown(fake_log(), {}, 99);
  fake->events->push({IBV_EVENT_QP_FATAL, &unknown});
  fake->events->push({IBV_EVENT_LID_CHANGE, nullptr});
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_LID_CHANGE);
  EXPECT_LT(position("acknowledge"), log.calls().size());
  EXPECT_EQ(log.count("acknowledge"), 2u);
}

TEST_F(OwnDescriptors, SuchADeviceChecksRequestsItself) {
  constexpr int kRelaxed = IBV_ACCESS_RELAXED_ORDERING, kOther = 1 << 18;
  ibv_mr* mr = ibv_reg_mr_iova2(pd, memory, 8, 0, kRelaxed | kOther);
  ASSERT_NE(mr, nullptr);
  auto* device = static_cast<device::fake::FakeMr*>(to_mr(mr)->device);
  EXPECT_EQ(device->init.access, static_cast<unsigned>(kRelaxed | kOther));
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ibv_ah_attr by_lid{};
  by_lid.dlid = 7;  // InfiniBand needs no GRH
  by_lid.port_num = 1;
  ibv_ah* ah = ibv_create_ah(pd, &by_lid);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(OwnDescriptors, NothingIsLeftOfAnMrThatSuchADeviceCannotRegisterAnew) {
  ibv_mr* mr = ibv_reg_mr(pd, memory, 8, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  log.fail_next("rereg_mr", EOPNOTSUPP);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(OwnDescriptors, AChildGoesOnWithTheContext) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ibv_pd* of_child = ibv_alloc_pd(context);
    const bool works = of_child && ibv_dealloc_pd(of_child) == 0 && log.count("abandon") == 0;
    ::_exit(works && ibv_close_device(context) == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ferry::verbs
