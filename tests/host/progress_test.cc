#include "host/checkpoint/progress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <string>
#include <vector>

#include "ferry.pb.h"
#include "host/checkpoint/attempt.h"
#include "host/checkpoint/meter.h"
#include "host/checkpoint/step_talk.h"
#include "host/checkpoint/take/stored_bytes.h"
#include "host/checkpoint/teller.h"
#include "host/peers/this_host.h"
#include "temporary.h"

// How far checkpoints and restarts are, and that they are given up.
namespace ferry::host {
namespace {

using ferry::test::failure_of;
using std::chrono::milliseconds;

class MeterTest : public ::testing::Test {
 protected:
  void set(std::size_t host, std::uint64_t done, std::uint64_t total, int after_ms) {
    meter.set(host, {done, total}, Meter::Time(milliseconds(1'000'000 + after_ms)));
  }
  Meter meter;
};

TEST_F(MeterTest, SumsWhatAllHostsHaveDone) {
  set(0, 10, 100, 0);
  set(1, 5, 20, 10);
  EXPECT_EQ(meter.read().bytes.done, 15u);
  EXPECT_EQ(meter.read().bytes.total, 120u);
  EXPECT_FALSE(meter.are_done(2));
  set(0, 100, 100, 20);
  set(1, 20, 20, 30);
  EXPECT_TRUE(meter.are_done(2));
  EXPECT_FALSE(meter.are_done(3));  // one has not told yet how much it has
}

TEST_F(MeterTest, TellsTheRateOfTheLastSeconds) {
  set(0, 0, 100'000, 0);
  EXPECT_EQ(meter.read().rate, 0);
  EXPECT_EQ(meter.read().left_seconds, 0);
  for (int second = 1; second <= 20; ++second)
    set(0, static_cast<std::uint64_t>(second) * 100, 100'000, second * 1000);
  EXPECT_NEAR(meter.read().rate, 100, 1);
  for (int second = 21; second <= 30; ++second)
    set(0, static_cast<std::uint64_t>(2000 + (second - 20) * 1000), 100'000, second * 1000);
  EXPECT_NEAR(meter.read().rate, 1000, 10);  // it has forgotten how slow it was
  EXPECT_NEAR(meter.read().left_seconds, 88, 1);
}

TEST_F(MeterTest, KeepsLittleOfWhatIsToldOften) {
  for (int ms = 0; ms < 4000; ++ms) set(0, static_cast<std::uint64_t>(ms), 8000, ms);
  EXPECT_NEAR(meter.read().rate, 1000, 1);
}

// Another host may say anything.
TEST_F(MeterTest, NobodyHasDoneMoreThanAll) {
  set(0, 200, 100, 0);
  EXPECT_EQ(meter.read().bytes.done, 100u);
}

class ProgressTest : public ::testing::Test {
 protected:
  std::vector<std::string> phases() const {
    std::vector<std::string> phases;
    for (const auto& each : told) {
      if (phases.empty() || phases.back() != each.phase()) phases.push_back(each.phase());
    }
    return phases;
  }
  std::vector<v1::CheckpointProgress> told;
  Progress progress{7, [this](const v1::CheckpointProgress& each) { told.push_back(each); }};
};

using Phases = std::vector<std::string>;

TEST_F(ProgressTest, ACheckBecomesACopyWhenSomethingIsCopied) {
  const auto host = progress.of_host();
  progress.begin({"check", "copy ahead", {}});
  EXPECT_EQ(phases(), (Phases{"check"}));
  host({1, 100});
  host({100, 100});
  EXPECT_EQ(phases(), (Phases{"check", "copy ahead"}));
  EXPECT_EQ(told.back().done_bytes(), 100u);
  EXPECT_EQ(told.back().attempt(), 7u);
  progress.begin({"stop", {}, {}});
  EXPECT_EQ(told.back().total_bytes(), 0u);
  progress.stood_still(2.5);
  progress.begin({"store", {}, {}});
  EXPECT_EQ(told.back().standstill_ms(), 2.5);
}

TEST_F(ProgressTest, APhaseEndsWhenAllHostsHaveDoneTheirs) {
  const auto first = progress.of_host(), second = progress.of_host();
  progress.begin({"read", {}, "restore"});
  first({50, 50});
  EXPECT_EQ(phases(), (Phases{"read"}));  // the second one has not said what it has to read
  second({0, 50});
  EXPECT_EQ(phases(), (Phases{"read"}));
  second({50, 50});
  EXPECT_EQ(phases(), (Phases{"read", "restore"}));
  EXPECT_EQ(told[told.size() - 2].done_bytes(), 100u);
}

TEST_F(ProgressTest, WhatIsToldOftenIsPassedOnSeldomAndTheLastAtAnyRate) {
  const auto host = progress.of_host();
  progress.begin({"store", {}, {}});
  for (std::uint64_t done = 0; done <= 10'000; ++done) host({done, 10'000});
  EXPECT_LT(told.size(), 5'000u);
  EXPECT_EQ(told.back().done_bytes(), 10'000u);
}

TEST_F(ProgressTest, NothingIsToldAfterItIsGivenUp) {
  const auto host = progress.of_host();
  progress.begin({"store", {}, {}});
  progress.give_up();
  host({1, 1});
  progress.begin({"end", {}, {}});
  progress.stood_still(1);
  EXPECT_EQ(phases(), (Phases{"store", "give up"}));
}

TEST(Teller, NobodyWaitsForWhoReads) {
  std::promise<void> reads;
  const auto may_read = reads.get_future().share();
  std::vector<std::uint64_t> written;
  {
    Teller teller([&](const v1::CheckpointProgress& progress) {
      may_read.wait();
      written.push_back(progress.done_bytes());
    });
    v1::CheckpointProgress progress;
    for (const char* phase : {"read", "restore"}) {
      progress.set_phase(phase);
      for (int i = 0; i < 1000; ++i) {
        progress.set_done_bytes(progress.done_bytes() + 1);
        teller.tell(progress);
      }
    }
    reads.set_value();
  }
  // The first one may have been on its way.
  ASSERT_GE(written.size(), 2u);
  ASSERT_LE(written.size(), 3u);
  EXPECT_EQ(written[written.size() - 2], 1000u);
  EXPECT_EQ(written.back(), 2000u);
}

class AttemptTest : public ::testing::Test {
 protected:
  ThisHost host;
  Attempts all;
  std::uint64_t id = 0;
  std::atomic<bool> is_awaited{true};
  Attempt attempt{all, host, Attempt::Kind::kRestart,
                  [this](const v1::CheckpointProgress& progress) { id = progress.attempt(); },
                  [this] { return is_awaited.load(); }};
};

constexpr char kGivenUp[] = "the restart is given up: none of its programs runs";

TEST_F(AttemptTest, IsGivenUpBeforeItIsDecided) {
  attempt.progress().begin({"look", {}, {}});
  attempt.need_wanted();
  all.give_up(id);
  all.give_up(id);
  EXPECT_THROW(attempt.need_wanted(), GivenUp);
  EXPECT_EQ(failure_of([&] { attempt.decide(); }), kGivenUp);
}

TEST_F(AttemptTest, IsNotGivenUpAfterThat) {
  attempt.progress().begin({"look", {}, {}});
  attempt.decide();
  EXPECT_EQ(failure_of([&] { all.give_up(id); }),
            "the restart is decided, and cannot be given up any more: the programs go on");
  is_awaited = false;
  attempt.need_wanted();
  host.stopping = true;
  EXPECT_EQ(failure_of([&] { attempt.need_wanted(); }), "this ferryd is ending");
}

TEST_F(AttemptTest, IsGivenUpWhenNobodyWaitsForIt) {
  is_awaited = false;
  EXPECT_EQ(failure_of([&] { attempt.need_wanted(); }), kGivenUp);
}

TEST_F(AttemptTest, OnlyWhatIsUnderWayCanBeGivenUp) {
  EXPECT_EQ(failure_of([&] { all.give_up(1); }),
            "it has ended already, and cannot be given up any more");
}

TEST(StoredBytes, AreWhatIsExpectedAtTheEnd) {
  StepBytes told;
  StoredBytes stored([&](const StepBytes& bytes) { told = bytes; });
  stored.expect(100);
  stored.add(60);
  EXPECT_EQ(told.done, 60u);
  stored.expect(20);
  stored.add(60);
  EXPECT_EQ(told.done, told.total);
}

}  // namespace
}  // namespace ferry::host
