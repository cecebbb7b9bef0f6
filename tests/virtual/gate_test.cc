#include "virtual/stop/gate.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace ferry::virt {
namespace {

// What a thread does with a queue.
template <typename Work>
bool pass(Gate& gate, Work work) {
  if (gate.enter()) {
    work();
    gate.leave();
    return true;
  }
  const auto lock = gate.lock();
  work();
  return false;
}

// ThreadSanitizer's build has no owners.
#ifndef __SANITIZE_THREAD__
TEST(Gate, TheFirstThreadOwnsItUntilAnotherComes) {
  Gate gate;
  const auto nothing = [] {};
  EXPECT_FALSE(pass(gate, nothing));
  EXPECT_TRUE(pass(gate, nothing));
  std::thread([&] { EXPECT_FALSE(pass(gate, nothing)); }).join();
  EXPECT_FALSE(pass(gate, nothing)) << "it is shared for good";
}

TEST(Gate, TheNextThreadOwnsItAfterItWasShut) {
  Gate gate;
  const auto nothing = [] {};
  pass(gate, nothing);
  Gate::shut(std::array{&gate});
  EXPECT_FALSE(pass(gate, nothing));
  EXPECT_FALSE(pass(gate, nothing));
  {
    const auto lock = gate.lock();
    EXPECT_TRUE(gate.is_shut());
    gate.open();
  }
  std::thread([&] {
    pass(gate, nothing);
    EXPECT_TRUE(pass(gate, nothing));
  }).join();
}
#endif

TEST(Gate, OneThreadIsInAtATime) {
  constexpr int kRounds = 200'000;
  Gate gate;
  int passes = 0;  // guarded by the gate
  const auto work = [&] {
    for (int i = 0; i < kRounds; ++i) pass(gate, [&] { ++passes; });
  };
  std::thread first(work);
  std::thread second([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // let the first one own it
    work();
  });
  first.join();
  second.join();
  EXPECT_EQ(passes, 2 * kRounds);
}

TEST(Gate, NobodyIsInAfterItWasShut) {
  Gate gate;
  std::atomic<bool> ends{false};
  long passes = 0;  // guarded by the gate
  std::thread program([&] {
    while (!ends) pass(gate, [&] { ++passes; });
  });
  for (int i = 0; i < 200; ++i) {
    Gate::shut(std::array{&gate});
    const auto lock = gate.lock();
    const long before = passes;
    std::this_thread::yield();
    ASSERT_EQ(passes, before);
    gate.open();
  }
  ends = true;
  program.join();
}

}  // namespace
}  // namespace ferry::virt
