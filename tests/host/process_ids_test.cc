#include "host/proc/process_ids.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <latch>
#include <thread>

namespace ferry::host {
namespace {

TEST(ProcessIds, AreThoseOfAllThreads) {
  std::latch known(1), done(1);
  pid_t other = 0;
  std::thread thread([&] {
    other = ::gettid();
    known.count_down();
    done.wait();
  });
  known.wait();
  const auto ids = ids_of_host(::getpid());
  EXPECT_TRUE(ids.contains(::getpid()));
  EXPECT_TRUE(ids.contains(other));
  EXPECT_EQ(find_taken({other}, "h2", "p", is_taken_here),
            "h2 has a process " + std::to_string(other) +
                " (host_test) already, and 'p' keeps its ids; a program in a container has ids "
                "of its own");
  done.count_down();
  thread.join();
}

TEST(ProcessIds, AnIdThatNobodyHasIsFree) {
  EXPECT_EQ(find_taken({0x3fffffff}, "h2", "p", is_taken_here), "");
  EXPECT_FALSE(find_taken({7}, "h2", "p", [](pid_t id) { return id == 7; }).empty());
}

}  // namespace
}  // namespace ferry::host
