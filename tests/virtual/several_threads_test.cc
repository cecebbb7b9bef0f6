#include "virtual/stop/several_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include "meeting_point.h"

namespace ferry::virt::testing {
namespace {

std::atomic<int> may_start{0};

// As where RLIMIT_NPROC leaves room for so many threads.
int start_if_there_is_room(pthread_t* thread, void* (*entry)(void*), void* argument) {
  if (may_start.fetch_sub(1) <= 0) return EAGAIN;
  return start_own_thread(thread, entry, argument);
}

TEST(SeveralThreads, WorkAtTheSameTime) {
  MeetingPoint all_four(4);
  EXPECT_EQ(by_several_threads(4, 4, [&](std::size_t) { return all_four.meet() ? 0 : ETIMEDOUT; }),
            0);
}

TEST(SeveralThreads, DoEachItemOnce) {
  std::vector<std::atomic<int>> done(1000);
  EXPECT_EQ(by_several_threads(3, done.size(), [&](std::size_t i) { return done[i]++ * EEXIST; }),
            0);
  for (const auto& times : done) EXPECT_EQ(times, 1);
}

TEST(SeveralThreads, AreNotMoreThanThereIsWork) {
  may_start = 100;
  EXPECT_EQ(by_several_threads(
                4, 2, [](std::size_t) { return 0; }, start_if_there_is_room),
            0);
  EXPECT_EQ(may_start, 99);
  EXPECT_EQ(by_several_threads(
                4, 0, [](std::size_t) { return EINVAL; }, start_if_there_is_room),
            0);
  EXPECT_EQ(may_start, 99);
}

TEST(SeveralThreads, AreFewerWhereTheSystemGivesFewer) {
  may_start = 1;
  MeetingPoint both(2);
  std::atomic<int> done{0};
  const auto act = [&](std::size_t i) {
    ++done;
    return i >= 2 || both.meet() ? 0 : ETIMEDOUT;
  };
  EXPECT_EQ(by_several_threads(4, 8, act, start_if_there_is_room), 0);
  EXPECT_EQ(done, 8);
}

TEST(SeveralThreads, AreTheCallerAloneWhereTheSystemGivesNone) {
  may_start = 0;
  std::set<std::thread::id> threads;
  const auto act = [&](std::size_t) {
    threads.insert(std::this_thread::get_id());
    return 0;
  };
  EXPECT_EQ(by_several_threads(4, 8, act, start_if_there_is_room), 0);
  EXPECT_EQ(threads, std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST(SeveralThreads, GiveTheErrorOfTheFirstItemThatFails) {
  for (int round = 0; round < 100; ++round) {
    std::atomic<std::size_t> last{0};
    const auto act = [&](std::size_t i) {
      last = std::max<std::size_t>(last, i);
      return i == 5 ? EMFILE : i > 5 ? ENOSPC : 0;
    };
    EXPECT_EQ(by_several_threads(4, 1000, act), EMFILE);
    EXPECT_LT(last, 1000u - 1) << "the others are not begun";
  }
}

TEST(SeveralThreads, TakeAMissOfMemoryForAnError) {
  MeetingPoint both(2);
  const auto act = [&](std::size_t i) -> int {
    both.meet();
    if (i == 1) throw std::bad_alloc();
    return 0;
  };
  EXPECT_EQ(by_several_threads(2, 2, act), ENOMEM);
}

TEST(SeveralThreads, TakeNoSignalOfTheProgram) {
  MeetingPoint both(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> blocked{-1};
  const auto act = [&](std::size_t) {
    both.meet();
    if (std::this_thread::get_id() == caller) return 0;
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = sigismember(&mask, SIGTERM) + sigismember(&mask, SIGPROF);
    return 0;
  };
  EXPECT_EQ(by_several_threads(2, 2, act), 0);
  EXPECT_EQ(blocked, 2);
}

}  // namespace
}  // namespace ferry::virt::testing
