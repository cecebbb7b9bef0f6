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

TEST(Simulation, ExactlyOnceInOrderUncorruptedWithMovesAtRandomPoints) {
  const std::uint64_t first = number_of("FERRY_SEED", 1);
  const std::uint64_t count =
      std::getenv("FERRY_SEED") != nullptr ? 1 : number_of("FERRY_SEEDS", 1000);
  unsigned moves = 0, rollbacks = 0, unacked = 0;
  std::size_t requests = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.trace = number_of("FERRY_TRACE", 0) != 0;
    const SimulationResult result = simulate(options);
    for (const std::string& error : result.errors) ADD_FAILURE() << error;
    ASSERT_TRUE(result.errors.empty())
        << "replay: FERRY_SEED=" << seed << " FERRY_TRACE=1 rnic_test --gtest_filter=Simulation.*";
    moves += result.moves;
    rollbacks += result.rollbacks;
    unacked += result.unacked_moves;
    requests += result.requests;
  }
  std::printf(
      "%llu seeds: %zu requests, %u moves, %u rollbacks, %u of them with packets in flight\n",
      static_cast<unsigned long long>(count), requests, moves, rollbacks, unacked);
  if (count >= 100) {
    // The simulation is worth nothing when little happens in it.
    EXPECT_GT(moves, count / 2);
    EXPECT_GT(rollbacks, count / 8);
    EXPECT_GT(unacked, count / 2);
  }
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
