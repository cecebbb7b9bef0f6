#include "precopy/planner.h"

#include <gtest/gtest.h>

namespace ferry::precopy {
namespace {

using namespace std::chrono_literals;
using Next = Planner::Next;

constexpr std::uint64_t MB = 1000 * 1000;

// A program of a GB, sent at 500 MB/s, that writes `dirty` bytes a second.
struct Played {
  explicit Played(const PlannerSettings& settings = {}) : planner(settings) {}
  Next round(std::uint64_t dirty) {
    Round round;
    round.sent = left;
    round.time = std::chrono::milliseconds(left / MB * 2);
    left = dirty * static_cast<std::uint64_t>(round.time.count()) / 1'000'000'000;
    round.left = left;
    return planner.after(round);
  }
  Planner planner;
  std::uint64_t left = 1000 * MB;
};

TEST(Planner, AProgramThatWritesNothingTakesOneRound) {
  Played run;
  EXPECT_EQ(run.round(0), Next::kStop);
  EXPECT_EQ(run.planner.rounds(), 1u);
}

TEST(Planner, RoundsGetShorterUntilLittleIsLeft) {
  Played run;
  EXPECT_EQ(run.round(50 * MB), Next::kRound);  // 2 s: 100 MB
  EXPECT_EQ(run.round(50 * MB), Next::kRound);  // 200 ms: 10 MB
  EXPECT_EQ(run.round(50 * MB), Next::kStop);   // 20 ms: 1 MB
  EXPECT_NEAR(run.planner.rate(), 500e6, 1e6);
  EXPECT_NEAR(run.planner.dirty_rate(), 50e6, 1e6);
}

TEST(Planner, AProgramThatWritesFasterThanCanBeSentIsStoppedAllTheSame) {
  Played run;
  int rounds = 1;
  while (run.round(600 * MB) == Next::kRound) ASSERT_LT(++rounds, 10);
  EXPECT_EQ(run.planner.rounds(), 4u);  // one, and three that did not help
}

TEST(Planner, ARoundThatHelpsGivesNewPatience) {
  PlannerSettings settings;
  settings.patience = 2;
  Planner planner(settings);
  const auto after = [&](std::uint64_t left) { return planner.after({100 * MB, left, 100ms}); };
  EXPECT_EQ(after(100 * MB), Next::kRound);
  EXPECT_EQ(after(99 * MB), Next::kRound);  // in vain
  EXPECT_EQ(after(50 * MB), Next::kRound);  // helped
  EXPECT_EQ(after(50 * MB), Next::kRound);  // in vain
  EXPECT_EQ(after(50 * MB), Next::kStop);   // in vain again
}

TEST(Planner, TheTimeOfAllRoundsIsLimited) {
  PlannerSettings settings;
  settings.longest = 3s;
  Played run(settings);
  EXPECT_EQ(run.round(400 * MB), Next::kRound);  // 2 s
  EXPECT_EQ(run.round(400 * MB), Next::kStop);   // 1.6 s
}

TEST(Planner, TheEstimateIsTheStopAndTheLastSet) {
  PlannerSettings settings;
  settings.stop = PlannerSettings::Milliseconds(100);
  Planner planner(settings);
  planner.after({1000 * MB, 50 * MB, 2s});  // 500 MB/s
  EXPECT_NEAR(planner.blackout().count(), 100 + 100, 0.1);
}

TEST(Planner, ARoundInVainMayBeFasterBeforeItCounts) {
  PlannerSettings settings;
  settings.patience = 1;
  Planner planner(settings);
  EXPECT_EQ(planner.after({500 * MB, 100 * MB, 10s, 9s, true}), Next::kRound);
  EXPECT_EQ(planner.after({100 * MB, 99 * MB, 2s, 1s, true}), Next::kFasterRound);
  EXPECT_EQ(planner.after({99 * MB, 98 * MB, 1s, 0s, true}), Next::kFasterRound);
  EXPECT_EQ(planner.after({98 * MB, 98 * MB, 1s, 0s, false}), Next::kStop);
}

TEST(Planner, TheStopDoesNotWaitAsTheRoundsDo) {
  PlannerSettings settings;
  settings.stop = PlannerSettings::Milliseconds(100);
  Planner planner(settings);
  planner.after({1000 * MB, 50 * MB, 10s, 8s, true});  // 500 MB/s, and 5 MB/s written
  EXPECT_NEAR(planner.rate(), 500e6, 1);
  EXPECT_NEAR(planner.dirty_rate(), 5e6, 1);
  EXPECT_NEAR(planner.blackout().count(), 100 + 100, 0.1);
}

// The rate of a round that waits may be that of a socket's buffer.
TEST(Planner, ABlackoutIsMeasuredByARoundThatDoesNotWait) {
  PlannerSettings settings;
  settings.stop = PlannerSettings::Milliseconds(100);
  settings.blackout = PlannerSettings::Milliseconds(200);
  Planner planner(settings);
  EXPECT_EQ(planner.after({1000 * MB, 90 * MB, 40s, 39s, true}), Next::kFullRound);  // 1 GB/s?
  EXPECT_EQ(planner.after({90 * MB, 60 * MB, 3s}), Next::kRound);                    // 30 MB/s
  EXPECT_EQ(planner.after({60 * MB, 2 * MB, 3s, 2900ms, true}), Next::kFullRound);
  EXPECT_EQ(planner.after({2 * MB, 1 * MB, 67ms}), Next::kStop);
}

TEST(Planner, ABlackoutIsNotGivenUpWhileRoundsCanBeFaster) {
  PlannerSettings settings;
  settings.stop = PlannerSettings::Milliseconds(100);
  settings.blackout = PlannerSettings::Milliseconds(200);
  settings.wait = 5s;
  Planner planner(settings);
  EXPECT_EQ(planner.after({1000 * MB, 200 * MB, 10s, 8s, true}), Next::kRound);
  EXPECT_EQ(planner.after({1000 * MB, 200 * MB, 10s, 8s, true}), Next::kFasterRound);
  EXPECT_EQ(planner.after({1000 * MB, 200 * MB, 10s, 8s, false}), Next::kGiveUp);
}

TEST(Planner, ABlackoutThatIsWantedIsWaitedFor) {
  PlannerSettings settings;
  settings.stop = PlannerSettings::Milliseconds(100);
  settings.blackout = PlannerSettings::Milliseconds(200);
  Planner planner(settings);
  const auto after = [&](std::uint64_t left, std::chrono::seconds time) {
    return planner.after({500 * MB * static_cast<std::uint64_t>(time.count()), left, time});
  };
  EXPECT_EQ(after(200 * MB, 1s), Next::kRound);  // 500 ms
  EXPECT_EQ(after(200 * MB, 10s), Next::kRound);
  EXPECT_EQ(after(200 * MB, 10s), Next::kRound);
  EXPECT_EQ(after(40 * MB, 1s), Next::kStop);  // it writes less now: 180 ms
}

TEST(Planner, ABlackoutThatDoesNotComeIsGivenUp) {
  PlannerSettings settings;
  settings.stop = PlannerSettings::Milliseconds(100);
  settings.blackout = PlannerSettings::Milliseconds(200);
  settings.wait = 5s;
  Planner planner(settings);
  EXPECT_EQ(planner.after({1000 * MB, 200 * MB, 2s}), Next::kRound);  // 500 ms
  EXPECT_EQ(planner.after({1000 * MB, 150 * MB, 2s}), Next::kRound);  // 400 ms: better
  EXPECT_EQ(planner.after({1000 * MB, 200 * MB, 2s}), Next::kRound);
  EXPECT_EQ(planner.after({1000 * MB, 200 * MB, 2s}), Next::kRound);
  EXPECT_EQ(planner.after({1000 * MB, 200 * MB, 2s}), Next::kGiveUp);
}

TEST(Planner, ABlackoutThatCannotBeIsGivenUpAtOnce) {
  PlannerSettings settings;
  settings.blackout = PlannerSettings::Milliseconds(10);
  Planner planner(settings);
  EXPECT_EQ(planner.after({100 * MB, 0, 2s}), Next::kGiveUp);
}

}  // namespace
}  // namespace ferry::precopy
