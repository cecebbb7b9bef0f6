#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "rig.h"
#include "verbs/objects.h"

namespace ferry::verbs {
namespace {

TEST_F(FullRig, AQpEventNamesTheQp) {
  fake->sink().asynchronous(IBV_EVENT_QP_ACCESS_ERR, fake_qp);
  pollfd p{context->async_fd, POLLIN, 0};
  EXPECT_EQ(::poll(&p, 1, 0), 1);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, qp);
  ibv_ack_async_event(&event);
  EXPECT_EQ(::poll(&p, 1, 0), 0);
}

TEST_F(FullRig, ACqEventNamesTheCq) {
  fake->sink().asynchronous(IBV_EVENT_CQ_ERR, fake_cq);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.element.cq, cq);
  ibv_ack_async_event(&event);
}

TEST_F(FullRig, APortEventNamesThePort) {
  fake->sink().asynchronous(IBV_EVENT_PORT_ACTIVE, nullptr);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.element.port_num, 1);
  ibv_ack_async_event(&event);
}

TEST_F(FullRig, DestroyingAQpWaitsForItsEvents) {
  ibv_qp_init_attr attributes = qp_attributes();
  ibv_qp* other = ibv_create_qp(pd, &attributes);
  fake->sink().asynchronous(IBV_EVENT_COMM_EST, to_qp(other)->device);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  std::atomic<bool> destroyed = false;
  std::thread destroyer([&] {
    EXPECT_EQ(ibv_destroy_qp(other), 0);
    destroyed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(destroyed);
  ibv_ack_async_event(&event);
  destroyer.join();
}

TEST_F(FullRig, AnEventOfADestroyedQpIsNeverSeen) {
  ibv_qp_init_attr attributes = qp_attributes();
  ibv_qp* other = ibv_create_qp(pd, &attributes);
  fake->sink().asynchronous(IBV_EVENT_COMM_EST, to_qp(other)->device);
  EXPECT_EQ(ibv_destroy_qp(other), 0);
  ::fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
  ibv_async_event event;
  EXPECT_EQ(ibv_get_async_event(context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

}  // namespace
}  // namespace ferry::verbs
