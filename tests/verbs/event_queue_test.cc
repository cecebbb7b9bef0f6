#include "verbs/event_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <thread>

namespace ferry::verbs {
namespace {

int waiting_bytes(const EventQueue& queue) {
  int bytes = 0;
  ::ioctl(queue.descriptor(), FIONREAD, &bytes);
  return bytes;
}

struct EventQueueTest : ::testing::Test {
  EventQueue queue;
  int one = 0, two = 0;
  Event event;
  void SetUp() override {
    ASSERT_EQ(queue.open(), 0);
    ::fcntl(queue.descriptor(), F_SETFL, O_NONBLOCK);
  }
};

TEST_F(EventQueueTest, FirstInFirstOut) {
  std::atomic<std::uint32_t> reported{0};
  queue.push({&one, IBV_EVENT_CQ_ERR, &reported});
  queue.push({&two, IBV_EVENT_QP_FATAL, &reported});
  EXPECT_EQ(waiting_bytes(queue), 2);
  ASSERT_EQ(queue.take(&event), 0);
  EXPECT_EQ(event.element, &one);
  EXPECT_EQ(reported, 1u);
  ASSERT_EQ(queue.take(&event), 0);
  EXPECT_EQ(event.type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(reported, 2u);
  EXPECT_EQ(queue.take(&event), EAGAIN);
}

TEST_F(EventQueueTest, ForgottenEventsLeaveNoTrace) {
  queue.push({&one});
  queue.push({&two});
  queue.push({&one});
  queue.forget(&one);
  EXPECT_EQ(waiting_bytes(queue), 1);
  queue.push({&two});
  EXPECT_EQ(waiting_bytes(queue), 2);
  ASSERT_EQ(queue.take(&event), 0);
  EXPECT_EQ(event.element, &two);
  ASSERT_EQ(queue.take(&event), 0);
  EXPECT_EQ(event.element, &two);
  EXPECT_EQ(queue.take(&event), EAGAIN);
  queue.push({&one});
  ASSERT_EQ(queue.take(&event), 0);
  EXPECT_EQ(event.element, &one);
}

TEST_F(EventQueueTest, WhatIsForgottenIsNotReadableAndBlocksNobody) {
  ASSERT_EQ(::fcntl(queue.descriptor(), F_SETFL, 0), 0);
  queue.push({&one});
  queue.forget(&one);
  queue.forget(&one);
  pollfd readable{queue.descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&readable, 1, 0), 0);
  // While another thread waits for an event.
  std::thread waiter([&] {
    Event taken;
    do {
      EXPECT_EQ(queue.take(&taken), 0);
    } while (taken.element != &two);
  });
  for (int i = 0; i < 1000; ++i) {
    queue.push({&one});
    queue.forget(&one);
  }
  queue.push({&two});
  waiter.join();
  EXPECT_EQ(::poll(&readable, 1, 0), 0);
}

TEST_F(EventQueueTest, AFullPipeDropsInsteadOfBlocking) {
  for (int i = 0; i < 70000; ++i) queue.push({&one});
  int taken = 0;
  while (queue.take(&event) == 0) ++taken;
  EXPECT_EQ(taken, 65536);
}

}  // namespace
}  // namespace ferry::verbs
