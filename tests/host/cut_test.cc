#include "host/move/source/group/cut.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>

#include "temporary.h"

namespace ferry::host {
namespace {

using ferry::test::failure_of;

Cut::Part part(std::uint64_t id) {
  Cut::Part part;
  part.move_id = id;
  return part;
}

void go_on() {}

TEST(Cut, IsTakenWhenAllHaveJoined) {
  Cut cut(2, false, {});
  auto first = std::async(std::launch::async, [&] { cut.join(1, part(11), go_on); });
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_FALSE(cut.is_full());
  cut.join(0, part(10), go_on);
  first.get();
  EXPECT_TRUE(cut.is_taken());
  EXPECT_FALSE(cut.ends_programs());
  ASSERT_EQ(cut.parts().size(), 2u);
  EXPECT_EQ(cut.parts()[0].move_id, 10u);
  EXPECT_EQ(cut.parts()[1].move_id, 11u);
}

TEST(Cut, WhoWaitsHearsThatTheGroupIsGivenUp) {
  Cut cut(2, false, {});
  EXPECT_EQ(failure_of([&] {
              cut.join(0, part(10), [] { throw std::runtime_error("another program failed"); });
            }),
            "another program failed");
  EXPECT_FALSE(cut.is_taken());
}

TEST(Cut, NobodyIsDumpedBeforeAllAreFrozen) {
  Cut cut(2, false, {});
  auto first = std::async(std::launch::async, [&] { cut.freeze(1, go_on); });
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  cut.freeze(0, go_on);
  first.get();
  EXPECT_EQ(
      failure_of([] {
        Cut(2, false, {}).freeze(0, [] { throw std::runtime_error("another program failed"); });
      }),
      "another program failed");
}

// Other hosts may have programs that still run.
TEST(Cut, NobodyIsDumpedBeforeItsOwnerHasSaidSo) {
  std::promise<void> others;
  std::atomic<int> calls = 0;
  Cut cut(2, false,
          {{},
           [&](const Cut::NeedOpen&) {
             ++calls;
             others.get_future().wait();
           },
           {}});
  auto first = std::async(std::launch::async, [&] { cut.freeze(1, go_on); });
  auto last = std::async(std::launch::async, [&] { cut.freeze(0, go_on); });
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(last.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout);
  others.set_value();
  first.get();
  last.get();
  EXPECT_EQ(calls, 1);
}

TEST(Cut, WhatItsOwnerThrowsGivesTheGroupUp) {
  const auto given_up = [] { throw std::runtime_error("the checkpoint is given up"); };
  Cut cut(1, false, {{}, [&](const Cut::NeedOpen&) { given_up(); }, {}});
  EXPECT_EQ(failure_of([&] { cut.freeze(0, go_on); }), "the checkpoint is given up");
}

// A program that has left goes on: what the others dump is not of the same moment.
TEST(Cut, ThatOneHasLeftIsNotTaken) {
  bool is_carried = false;
  Cut cut(2, true, {{}, {}, [&] { is_carried = true; }});
  EXPECT_EQ(failure_of([&] {
              cut.join(0, part(10), [looks = 0]() mutable {
                if (++looks > 1) throw std::runtime_error("its time has passed");
              });
            }),
            "its time has passed");
  EXPECT_EQ(failure_of([&] { cut.join(1, part(11), go_on); }), "its time has passed");
  EXPECT_FALSE(cut.is_taken());
  EXPECT_FALSE(is_carried);
}

// CRIU would restore the one and refuse the other.
TEST(Cut, AFileHasOneLength) {
  bool is_carried = false;
  Cut cut(2, true, {{}, {}, [&] { is_carried = true; }});
  Cut::Part one = part(10), other = part(11);
  one.written = {{"/var/log/a", 10, 0}, {"/var/log/b", 5, 0}};
  other.written = {{"/var/log/a", 12, 0}};
  auto first =
      std::async(std::launch::async, [&] { return failure_of([&] { cut.join(0, one, go_on); }); });
  const std::string said =
      "/var/log/a is written by a program that is not in the checkpoint; name it there as well";
  EXPECT_EQ(failure_of([&] { cut.join(1, other, go_on); }), said);
  EXPECT_EQ(first.get(), said);
  EXPECT_FALSE(is_carried);
}

// Nobody goes on while the images are carried away, whatever else fails.
TEST(Cut, OnceItIsFullOnlyItsEndCounts) {
  std::promise<void> carried;
  std::atomic<bool> is_given_up = false;
  Cut cut(2, true, {{}, {}, [&] {
                      EXPECT_EQ(cut.parts().size(), 2u);
                      carried.get_future().wait();
                    }});
  const auto need_open = [&] {
    if (is_given_up) throw std::runtime_error("given up");
  };
  auto first = std::async(std::launch::async, [&] { cut.join(0, part(10), need_open); });
  auto last = std::async(std::launch::async, [&] { cut.join(1, part(11), need_open); });
  while (!cut.is_full()) std::this_thread::yield();
  is_given_up = true;
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  EXPECT_FALSE(cut.is_taken());
  carried.set_value();
  first.get();
  last.get();
  EXPECT_TRUE(cut.is_taken());
  EXPECT_TRUE(cut.ends_programs());
}

TEST(Cut, AllHearThatTheImagesCannotBeCarriedAway) {
  Cut cut(2, true, {{}, {}, [] { throw std::runtime_error("the disk is full"); }});
  auto first = std::async(std::launch::async,
                          [&] { return failure_of([&] { cut.join(0, part(10), go_on); }); });
  EXPECT_EQ(failure_of([&] { cut.join(1, part(11), go_on); }), "the disk is full");
  EXPECT_EQ(first.get(), "the disk is full");
  EXPECT_FALSE(cut.is_taken());
}

}  // namespace
}  // namespace ferry::host
