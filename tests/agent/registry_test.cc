#include "agent/registry.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;

std::chrono::steady_clock::time_point in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

TEST(Registry, KeepsContextsInOrder) {
  Registry registry;
  auto* a = reinterpret_cast<device::MovableContext*>(8);
  auto* b = reinterpret_cast<device::MovableContext*>(16);
  {
    Registry::Change change(registry);
    change.add({a, "ferry0", "rdma0"});
    change.add({b, "ferry1", "rdma1"});
    change.remove(a);
  }
  int seen = 0;
  registry.for_each([&](Registry::Entry& e) {
    ++seen;
    EXPECT_EQ(e.context, b);
    EXPECT_EQ(e.netdev, "rdma1");
  });
  EXPECT_EQ(seen, 1);
}

TEST(Registry, AChangeWaitsForTheEndOfAStop) {
  Registry registry;
  ASSERT_TRUE(registry.begin_stop(in(1s)));
  std::atomic<bool> changed = false;
  std::thread opener([&] {
    Registry::Change change(registry);
    changed = true;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(changed);
  registry.end_stop();
  opener.join();
  EXPECT_TRUE(changed);
}

TEST(Registry, AStopWaitsForChangesUntilItsDeadline) {
  Registry registry;
  {
    Registry::Change change(registry);
    EXPECT_FALSE(registry.begin_stop(in(10ms)));
  }
  Registry::Change again(registry);  // a stop that did not happen shuts nobody out
}

}  // namespace
}  // namespace ferry::agent
