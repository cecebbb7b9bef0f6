#include "precopy/brake.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

namespace ferry::precopy {
namespace {

using namespace std::chrono_literals;

constexpr char kStat[] =
    "cpu  100 0 100 1200 30 0 0 0 0 0\n"
    "cpu0 50 0 50 400 10 0 0 0 0 0\n"
    "cpu1 50 0 50 500 20 0 0 0 0 0\n"
    "cpu7 0 0 0 300 0 0 0 0 0 0\n"
    "intr 1234 5 6\n"
    "cpu2 not a line of a processor\n";

cpu_set_t set_of(std::initializer_list<int> processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(processor, &set);
  return set;
}

TEST(IdleTime, IsThatOfTheProcessorsThatAreMeant) {
  EXPECT_EQ(idle_time(kStat, set_of({0}), 10ms), 4100ms);
  EXPECT_EQ(idle_time(kStat, set_of({0, 1, 7}), 10ms), 12300ms);
  EXPECT_EQ(idle_time(kStat, set_of({1, 2}), 1ms), 520ms);
}

TEST(IdleTime, OfProcessorsThatAreNotThereIsNotKnown) {
  EXPECT_EQ(idle_time(kStat, set_of({2}), 10ms), std::nullopt);
  EXPECT_EQ(idle_time("", set_of({0}), 10ms), std::nullopt);
  EXPECT_EQ(idle_time("cpu0 1 2\n", set_of({0}), 10ms), std::nullopt);
}

TEST(Brake, AThreadHasALowerPriorityWhileItLives) {
  std::thread([] {
    const auto thread = static_cast<id_t>(::gettid());
    const int before = ::getpriority(PRIO_PROCESS, thread);
    {
      const Brake brake(PaceSettings{});
      EXPECT_EQ(::getpriority(PRIO_PROCESS, thread), std::max(before, 8));
    }
    // To raise it again takes a privilege.
    if (::geteuid() == 0) EXPECT_EQ(::getpriority(PRIO_PROCESS, thread), before);
  }).join();
}

TEST(Brake, WaitsAsLongAsTheRateWants) {
  std::thread([] {
    const auto began = std::chrono::steady_clock::now();
    Brake brake({.floor = 1, .doubles = std::chrono::nanoseconds::max(), .rate = 1e6});
    brake.after(300'000, [] {});
    EXPECT_GE(std::chrono::steady_clock::now() - began, 300ms);
  }).join();
}

TEST(Brake, ThoseWhoShareARateHaveAPartOfItEach) {
  std::thread([] {
    std::atomic<unsigned> sharers{2};
    const auto began = std::chrono::steady_clock::now();
    {
      Brake brake({.floor = 1, .doubles = std::chrono::nanoseconds::max(), .rate = 1e6}, &sharers);
      EXPECT_EQ(sharers, 3U);
      brake.after(100'000, [] {});
    }
    EXPECT_GE(std::chrono::steady_clock::now() - began, 300ms);
    EXPECT_EQ(sharers, 2U);
  }).join();
}

TEST(Brake, AWaitEndsWhenTheCopyIsNotWantedAnyMore) {
  std::thread([] {
    Brake brake({.floor = 1, .doubles = std::chrono::nanoseconds::max(), .rate = 1e3});
    EXPECT_THROW(brake.after(1'000'000, [] { throw std::runtime_error("given up"); }),  // 1,000 s
                 std::runtime_error);
  }).join();
}

}  // namespace
}  // namespace ferry::precopy
