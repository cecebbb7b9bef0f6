#include "simulation.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

// FERRY_SEEDS=N runs N seeds (default below); FERRY_SEED=S runs seed S alone, FERRY_TRACE=1 with it
// prints every packet.
namespace ferry::rnic::testing {
namespace {

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != 0 ? std::strtoull(value, nullptr, 0) : otherwise;
}

struct Sum : SimulationResult {
  std::uint64_t seeds = 0;
};

Sum run_seeds(ibv_qp_type service, std::uint64_t wanted) {
  const std::uint64_t first = number_of("FERRY_SEED", 1);
  const std::uint64_t count =
      std::getenv("FERRY_SEED") != nullptr ? 1 : number_of("FERRY_SEEDS", wanted);
  Sum sum;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.service = service;
    options.trace = number_of("FERRY_TRACE", 0) != 0;
    const SimulationResult result = simulate(options);
    for (const std::string& error : result.errors) ADD_FAILURE() << error;
    if (!result.errors.empty()) {
      ADD_FAILURE() << "replay: FERRY_SEED=" << seed
                    << " FERRY_TRACE=1 rnic_test --gtest_filter=Simulation.*";
      return sum;
    }
    ++sum.seeds;
    sum.moves += result.moves;
    sum.rollbacks += result.rollbacks;
    sum.unacked_moves += result.unacked_moves;
    sum.requests += result.requests;
    sum.delivered += result.delivered;
    sum.lost += result.lost;
    sum.window_writes += result.window_writes;
    sum.window_endings += result.window_endings;
    sum.refused_writes += result.refused_writes;
  }
  std::printf("%llu seeds: %zu requests, %u moves, %u rollbacks\n",
              static_cast<unsigned long long>(sum.seeds), sum.requests, sum.moves, sum.rollbacks);
  if (sum.seeds >= 100) {
    // The simulation is worth nothing when little happens in it.
    EXPECT_GT(sum.moves, sum.seeds / 2);
    EXPECT_GT(sum.rollbacks, sum.seeds / 8);
  }
  return sum;
}

TEST(Simulation, ExactlyOnceInOrderUncorruptedWithMovesAtRandomPoints) {
  const Sum sum = run_seeds(IBV_QPT_RC, 700);
  std::printf("%u moves with packets in flight; %llu writes through windows, %llu windows ended\n",
              sum.unacked_moves, static_cast<unsigned long long>(sum.window_writes),
              static_cast<unsigned long long>(sum.window_endings));
  if (sum.seeds < 100) return;
  EXPECT_GT(sum.unacked_moves, sum.seeds / 2);
  EXPECT_GT(sum.window_writes, sum.seeds);
  EXPECT_GT(sum.window_endings, sum.seeds);
  EXPECT_GT(sum.refused_writes, sum.seeds / 4);
}

TEST(Simulation, UcDeliversWholeInOrderAndLosesOnlyWhatMovesOrLinksLose) {
  const Sum sum = run_seeds(IBV_QPT_UC, 300);
  std::printf("%llu delivered, %llu lost\n", static_cast<unsigned long long>(sum.delivered),
              static_cast<unsigned long long>(sum.lost));
  if (sum.seeds < 100) return;
  EXPECT_GT(sum.lost, 0u);
  EXPECT_GT(sum.delivered, 10 * sum.lost);
}

TEST(Simulation, UdDeliversOnceUnderVirtualNamesAndLosesOnlyWhatMovesOrLinksLose) {
  const Sum sum = run_seeds(IBV_QPT_UD, 400);
  std::printf("%llu delivered, %llu lost\n", static_cast<unsigned long long>(sum.delivered),
              static_cast<unsigned long long>(sum.lost));
  if (sum.seeds < 100) return;
  EXPECT_GT(sum.lost, 0u);
  EXPECT_GT(sum.delivered, 5 * sum.lost);
}

TEST(Simulation, IsDeterministic) {
  SimulationOptions options;
  options.seed = 7;
  const SimulationResult first = simulate(options), second = simulate(options);
  EXPECT_EQ(first.retransmitted, second.retransmitted);
  EXPECT_EQ(first.requests, second.requests);
  EXPECT_EQ(first.moves, second.moves);
}

}  // namespace
}  // namespace ferry::rnic::testing
