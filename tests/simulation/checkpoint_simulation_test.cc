#include <gtest/gtest.h>

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "simulation/checkpoint_world.h"

// FERRY_SEEDS=N runs N schedules, FERRY_FIRST_SEED=S from S on; FERRY_SEED=S runs that one alone, with FERRY_TRACE=1
// printing every step.
namespace ferry::simulation {
namespace {

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != 0 ? std::strtoull(value, nullptr, 0) : otherwise;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSchedules = 2'000;
#else
constexpr std::uint64_t kSchedules = 20'000;
#endif

// In memory where that can be: each schedule waits for its files to be durable.
class StoreFolder {
 public:
  StoreFolder() {
    const bool has_memory = std::filesystem::is_directory("/dev/shm");
    path_ = has_memory ? "/dev/shm/ferry-store.XXXXXX" : "/tmp/ferry-store.XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
  }
  ~StoreFolder() { std::filesystem::remove_all(path_); }
  StoreFolder(const StoreFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Runs one schedule in a directory of its own. Gives what went wrong.
std::string run_one(std::uint64_t seed, Lacking lacking, CheckpointTotals* sum,
                    std::string* about = nullptr) {
  const StoreFolder folder;
  CheckpointWorld world({seed, lacking, folder.path(), number_of("FERRY_TRACE", 0) != 0});
  const std::string failure = world.run();
  *sum += world.totals();
  if (about != nullptr) *about = world.describe();
  return failure;
}

TEST(CheckpointSimulation, AllProgramsGoOnOrEndAlike) {
  const std::uint64_t alone = number_of("FERRY_SEED", 0);
  const std::uint64_t count = alone != 0 ? 1 : number_of("FERRY_SEEDS", kSchedules);
  const std::uint64_t first = alone != 0 ? alone : number_of("FERRY_FIRST_SEED", 1);
  CheckpointTotals sum;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    std::string about;
    ASSERT_EQ(run_one(seed, Lacking::kNothing, &sum, &about), "")
        << about << "\n  replay: FERRY_SEED=" << seed
        << " FERRY_TRACE=1 bin/checkpoint_simulation_test --gtest_filter='*Alike'";
  }
  std::printf("%s\n", to_json(sum).c_str());
  if (count < 2000) return;
  // The schedules reach what they are for.
  EXPECT_GT(sum.decided, count / 4);
  EXPECT_GT(sum.given_up, count / 10);
  EXPECT_GT(sum.asked_store, count / 50);
  for (std::size_t i = 0; i < sum.troubles.size(); ++i) {
    EXPECT_GT(sum.troubles[i], count / 50) << name_of(static_cast<Trouble>(i));
  }
}

TEST(CheckpointSimulation, IsDeterministic) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CheckpointTotals one, other;
    EXPECT_EQ(run_one(seed, Lacking::kNothing, &one), run_one(seed, Lacking::kNothing, &other));
    EXPECT_EQ(to_json(one), to_json(other));
  }
}

// Without any one of these a checkpoint breaks a job, and the simulation shows how.
struct Need {
  Lacking lacking;
  const char* name;
  const char* breaks;
};
class CheckpointGuard : public testing::TestWithParam<Need> {};

TEST_P(CheckpointGuard, IsNeeded) {
  constexpr std::uint64_t kMost = 5'000;
  CheckpointTotals sum;
  for (std::uint64_t seed = 1; seed <= kMost; ++seed) {
    const auto failure = run_one(seed, GetParam().lacking, &sum);
    if (failure.find(GetParam().breaks) == failure.npos) continue;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), failure.c_str());
    return;
  }
  ADD_FAILURE() << "no schedule breaks";
}

INSTANTIATE_TEST_SUITE_P(
    CheckpointSimulation, CheckpointGuard,
    testing::Values(Need{Lacking::kWaitingForAll, "WaitingForAll",
                         "an image was begun before all programs stood still"},
                    Need{Lacking::kAskingStore, "AskingStore", "those of others do not"},
                    Need{Lacking::kDecidingInStore, "DecidingInStore", "those of others do"}),
    [](const auto& guard) { return guard.param.name; });

// 2,048 programs on 128 hosts: three rounds, whose time is that of the network and of the leader's processor, which the
// steps of one round use one after the other.
TEST(CheckpointSimulation, WhatTheNetworkAddsToAStandstill) {
  constexpr std::size_t kHosts = 128;
  const auto network = network_part(kHosts, microseconds(50), Time(0));
  EXPECT_EQ(network.rounds, 3u);
  EXPECT_EQ(network.messages, 2 * 3 * kHosts);
  EXPECT_EQ(network.time, 3 * 2 * microseconds(50));
  const auto with_work = network_part(kHosts, microseconds(50), microseconds(20));
  EXPECT_LE(with_work.time, milliseconds(10));
  EXPECT_GE(with_work.time, 3 * kHosts * microseconds(20));
  std::printf(
      "{\"hosts\": %zu, \"rounds\": %zu, \"messages\": %zu, \"network_ms\": %.2f, "
      "\"with_20_us_each_ms\": %.2f}\n",
      kHosts, network.rounds, network.messages, static_cast<double>(network.time.count()) / 1e6,
      static_cast<double>(with_work.time.count()) / 1e6);
}

}  // namespace
}  // namespace ferry::simulation
