#include "precopy/pace.h"

#include <gtest/gtest.h>

namespace ferry::precopy {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using Seconds = std::chrono::duration<double>;

constexpr std::uint64_t kPiece = 1 << 20;

// A thread that copies pieces of 1 MiB, each of which takes it 1 ms of a processor.
class Copier {
 public:
  explicit Copier(const PaceSettings& settings) : pace(settings) {}

  // Copies for so long, while so many processors would be idle without it. Gives its share of a processor.
  double copy(nanoseconds time, double idle) {
    const auto until = used.time + time;
    const auto began = used;
    while (used.time < until) {
      const auto before = used;
      used.time += 1ms;
      used.processor += 1ms;
      used.bytes += kPiece;
      used.time += pace.after(used);
      const double free = idle * Seconds(used.time - before.time).count() - (idle >= 1 ? 0.001 : 0);
      used.idle += std::chrono::duration_cast<nanoseconds>(Seconds(free));
    }
    return Seconds(used.processor - began.processor) / Seconds(used.time - began.time);
  }

  Pace pace;
  Pace::Used used;
};

PaceSettings steady() {
  return {.floor = 0.15, .doubles = nanoseconds::max(), .rate = 0};
}

TEST(Pace, WhereNoProcessorIsFreeCopyingTakesItsFloor) {
  Copier copier(steady());
  EXPECT_NEAR(copier.copy(5s, 0), 0.15, 0.01);
}

TEST(Pace, WhereAProcessorIsFreeCopyingTakesAllThatItCan) {
  Copier copier(steady());
  copier.copy(1s, 2);  // finds out
  EXPECT_EQ(copier.copy(2s, 2), 1);
}

TEST(Pace, WhenProgramsWantTheirProcessorsBackCopyingMakesWay) {
  Copier copier(steady());
  copier.copy(2s, 2);
  copier.copy(1s, 0);  // finds out
  EXPECT_NEAR(copier.copy(2s, 0), 0.15, 0.01);
}

TEST(Pace, WhatIsIdleInPartIsNoReasonToChange) {
  Copier copier(steady());
  EXPECT_NEAR(copier.copy(5s, 0.2), 0.15, 0.01);
}

TEST(Pace, CopyingThatTakesLongMayTakeMore) {
  PaceSettings settings = steady();
  settings.doubles = 10s;
  Copier copier(settings);
  copier.copy(10s, 0);
  EXPECT_NEAR(copier.pace.floor(), 0.3, 0.01);
  copier.copy(60s, 0);
  EXPECT_EQ(copier.pace.floor(), 1);
  EXPECT_EQ(copier.copy(1s, 0), 1);
}

TEST(Pace, ARaisedFloorIsTakenAtOnce) {
  Copier copier(steady());
  copier.copy(1s, 0);
  copier.pace.raise();
  EXPECT_NEAR(copier.copy(5s, 0), 0.3, 0.01);
  copier.pace.set_floor(0.5);
  EXPECT_NEAR(copier.copy(5s, 0), 0.5, 0.01);
}

TEST(Pace, ARateIsKeptHoweverManyProcessorsAreFree) {
  PaceSettings settings = steady();
  settings.rate = 10 * kPiece;
  Copier copier(settings);
  EXPECT_NEAR(copier.copy(20s, 4), 0.01, 0.001);  // 10 pieces a second
  copier.pace.set_floor(1);
  EXPECT_NEAR(copier.copy(20s, 4), 0.01, 0.001);
}

TEST(Pace, WhoHasAWholeProcessorOrARateIsNotHeldByTheFloor) {
  Copier held(steady());
  held.copy(1s, 0);
  EXPECT_TRUE(held.pace.is_slow());
  Copier idle(steady());
  idle.copy(2s, 2);
  EXPECT_FALSE(idle.pace.is_slow());
  PaceSettings settings = steady();
  settings.rate = 10 * kPiece;
  Copier limited(settings);
  limited.copy(5s, 0);
  EXPECT_FALSE(limited.pace.is_slow());
}

TEST(Pace, ThreadsShareTheFloorAndTheRate) {
  Copier copier(steady());
  copier.used.sharers = 3;
  EXPECT_NEAR(copier.copy(5s, 0), 0.05, 0.01);
  EXPECT_NEAR(copier.pace.floor(), 0.05, 0.001);
  PaceSettings settings = steady();
  settings.rate = 30 * kPiece;
  Copier limited(settings);
  limited.used.sharers = 3;
  EXPECT_NEAR(limited.copy(20s, 4), 0.01, 0.001);  // 10 pieces a second
}

TEST(Pace, AThreadThatWasHeldUpDoesNotMakeUpForIt) {
  Pace pace(steady());
  Pace::Used used;
  used.time = 10s;  // it waited for its peer
  used.processor = 1ms;
  EXPECT_EQ(pace.after(used), 0ns);
  nanoseconds waits{0};
  for (int i = 0; i < 100; ++i) {
    used.time += 1ms;
    used.processor += 1ms;
    const auto wait = pace.after(used);
    used.time += wait;
    waits += wait;
  }
  EXPECT_GT(waits, 500ms);  // 100 ms of a processor are to take about 667 ms
}

}  // namespace
}  // namespace ferry::precopy
