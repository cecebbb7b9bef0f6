#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "simulation/world.h"

// FERRY_SEEDS=N runs N schedules, FERRY_FIRST_SEED=S from S on; FERRY_SEED=S runs that one alone,
// with FERRY_TRACE=1 printing every packet and step.
namespace ferry::simulation {
namespace {

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != 0 ? std::strtoull(value, nullptr, 0) : otherwise;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSchedules = 3000;
#else
constexpr std::uint64_t kSchedules = 100'000;
#endif

// The seeds are dealt out to tests that run side by side.
constexpr std::uint64_t kShards = 4;
class Shard : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Shard, NeverTwoNeverNoneExactlyOnce) {
  const std::uint64_t alone = number_of("FERRY_SEED", 0);
  const std::uint64_t count = alone != 0 ? 1 : number_of("FERRY_SEEDS", kSchedules) / kShards;
  const std::uint64_t first =
      alone != 0 ? alone : number_of("FERRY_FIRST_SEED", 1) + GetParam() * count;
  Totals sum;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    World world({.seed = seed, .trace = number_of("FERRY_TRACE", 0) != 0});
    const std::string failure = world.run();
    ASSERT_EQ(failure, "") << world.describe() << "\n  replay: FERRY_SEED=" << seed
                           << " FERRY_TRACE=1 bin/move_simulation_test "
                              "--gtest_filter='*Shard*/0'";
    sum += world.totals();
  }
  std::printf("%s\n", to_json(sum).c_str());
  if (count < 3000) return;
  // The schedules reach what they are for: every fault at every step where it can happen.
  EXPECT_GT(sum.commits, sum.moves / 3);
  EXPECT_GT(sum.rollbacks, sum.moves / 10);
  EXPECT_GT(sum.overlapping, sum.moves / 10);
  EXPECT_GT(sum.again, sum.moves / 10);
  EXPECT_GT(sum.groups, sum.moves / 20);
  EXPECT_GT(sum.groups_committed, sum.groups / 4);
  EXPECT_LT(sum.groups_committed, sum.groups - sum.groups / 10);
  EXPECT_GT(sum.several, sum.moves / 50);
  EXPECT_GT(sum.several_committed, sum.several / 5);
  EXPECT_LT(sum.several_committed, sum.several - sum.several / 10);
  EXPECT_GT(sum.settled, 0u);
  EXPECT_GT(sum.stand_ins_expired, 0u);
  EXPECT_GT(sum.ghosts, 0u);
  for (std::size_t step = 0; step < sum.faults.size(); ++step) {
    for (const Fault kind : {Fault::kSelf, Fault::kOther, Fault::kBoth, Fault::kCut}) {
      EXPECT_GT(sum.faults[step][static_cast<std::size_t>(kind)], 0u)
          << name_of(kind) << " at " << name_of(static_cast<Step>(step));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(MoveSimulation, Shard, testing::Range(std::uint64_t{0}, kShards));

TEST(MoveSimulation, IsDeterministic) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World first({.seed = seed}), second({.seed = seed});
    EXPECT_EQ(first.run(), "");
    EXPECT_EQ(second.run(), "");
    EXPECT_EQ(to_json(first.totals()), to_json(second.totals()));
    EXPECT_EQ(first.describe(), second.describe());
  }
}

// Without any one of its guards a move breaks a program, and the simulation shows how.
class Guard : public testing::TestWithParam<Without> {};

TEST_P(Guard, IsNeeded) {
  constexpr std::uint64_t kMost = 20'000;
  for (std::uint64_t seed = 1; seed <= kMost; ++seed) {
    World world({.seed = seed,
                 .without = GetParam(),
                 .disk_faults = GetParam() == Without::kRevoking ? 4 : 0.5});
    if (const std::string failure = world.run(); !failure.empty()) {
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), failure.c_str());
      return;
    }
  }
  ADD_FAILURE() << "no schedule breaks";
}

INSTANTIATE_TEST_SUITE_P(MoveSimulation, Guard,
                         testing::Values(Without::kAskingAgain, Without::kRecordThere,
                                         Without::kStayingFrozen, Without::kRevoking,
                                         Without::kStandInTerm, Without::kSilentArrival,
                                         Without::kStandInsAgain, Without::kOneDecision,
                                         Without::kOneRecord, Without::kAllPromises),
                         [](const auto& guard) {
                           switch (guard.param) {
                             case Without::kAskingAgain: return "AskingAgain";
                             case Without::kRecordThere: return "RecordThere";
                             case Without::kStayingFrozen: return "StayingFrozen";
                             case Without::kRevoking: return "Revoking";
                             case Without::kStandInTerm: return "StandInTerm";
                             case Without::kSilentArrival: return "SilentArrival";
                             case Without::kStandInsAgain: return "StandInsAgain";
                             case Without::kOneDecision: return "OneDecision";
                             case Without::kOneRecord: return "OneRecord";
                             case Without::kAllPromises: return "AllPromises";
                             default: return "Nothing";
                           }
                         });

}  // namespace
}  // namespace ferry::simulation
