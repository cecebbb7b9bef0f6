#include "host/units/vm/migration_pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace ferry::host {
namespace {

using Time = MigrationPace::Time;

constexpr double kMega = 1e6;

// QEMU's migration of a machine that writes to `hot` bytes of its memory, `write_rate` bytes a second, by a link that
// carries `rate`. It is looked at every `look` milliseconds.
struct PlayedMigration {
  double memory = 0, hot = 0, write_rate = 0, rate = 0, look = 5;

  double left = memory, written = 0, at = 0;
  unsigned round = 1;
  bool is_over = false;  // QEMU has stopped the machine by itself

  void pass(double seconds) {
    constexpr double kStep = 0.0005;
    for (double end = at + seconds; at < end && !is_over; at += kStep) {
      left = std::max(0.0, left - rate * kStep);
      written = std::min(hot, written + write_rate * kStep);
      if (left >= rate * 0.001) continue;  // more than QEMU's downtime limit of 1 ms
      left += written;
      written = 0;
      ++round;
      is_over = left < rate * 0.001;
    }
  }
  // Until QEMU is to be held back, or has ended; 60 s at most.
  bool run(MigrationPace* pace) {
    while (at < 60 && !is_over) {
      const auto now = std::chrono::duration_cast<Time>(std::chrono::duration<double>(at));
      if (pace->next({now, static_cast<std::uint64_t>(left), round, rate})) return true;
      pass(look / 1e3);
    }
    return false;
  }
};

TEST(MigrationPaceTest, AnIdleMachineIsHeldShortlyBeforeTheEndOfTheFirstPass) {
  PlayedMigration qemu{
      .memory = 4000 * kMega, .hot = 5 * kMega, .write_rate = 1 * kMega, .rate = 1000 * kMega};
  MigrationPace pace(100, qemu.write_rate);
  ASSERT_TRUE(qemu.run(&pace));
  EXPECT_EQ(qemu.round, 1u);
  EXPECT_LT(qemu.left, 100 * kMega);
  EXPECT_LE(pace.left_ms(), 100);
}

TEST(MigrationPaceTest, ABusyMachineIsHeldInARoundThatIsShort) {
  PlayedMigration qemu{
      .memory = 4000 * kMega, .hot = 2000 * kMega, .write_rate = 200 * kMega, .rate = 1000 * kMega};
  MigrationPace pace(100, qemu.write_rate);
  ASSERT_TRUE(qemu.run(&pace));
  EXPECT_GE(qemu.round, 3u);  // 4 s, 800 ms, 160 ms, 32 ms
  EXPECT_LE(pace.left_ms(), 100);
}

TEST(MigrationPaceTest, AMachineThatWritesAsFastAsItIsSentIsHeldWhenRoundsAreOfNoUse) {
  PlayedMigration qemu{.memory = 4000 * kMega,
                       .hot = 1000 * kMega,
                       .write_rate = 2000 * kMega,
                       .rate = 1000 * kMega};
  MigrationPace pace(100, qemu.write_rate);
  ASSERT_TRUE(qemu.run(&pace));
  EXPECT_LE(qemu.round, 4u);
  EXPECT_GT(pace.left_ms(), 900);
}

TEST(MigrationPaceTest, RoundsEndSomeTime) {
  // Each round leaves 65 % of the one before.
  MigrationPace pace(1, 0);
  double left = 1000 * kMega;
  for (unsigned round = 1; round <= MigrationPace::kMostRounds; ++round, left *= 0.65) {
    const auto at = std::chrono::seconds(round);
    EXPECT_FALSE(pace.next({at, static_cast<std::uint64_t>(left), round, 100 * kMega})) << round;
  }
  EXPECT_TRUE(pace.next({std::chrono::seconds(20), static_cast<std::uint64_t>(left),
                         MigrationPace::kMostRounds + 1, 100 * kMega}));
}

TEST(MigrationPaceTest, LateLooksDoNotMissTheEnd) {
  PlayedMigration qemu{.memory = 512 * kMega,
                       .hot = 5 * kMega,
                       .write_rate = 1 * kMega,
                       .rate = 500 * kMega,
                       .look = 60};
  MigrationPace pace(100, qemu.write_rate);
  EXPECT_TRUE(qemu.run(&pace));
  EXPECT_FALSE(qemu.is_over);
}

}  // namespace
}  // namespace ferry::host
