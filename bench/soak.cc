// soak: runs schedules of the simulation of whole moves (tests/simulation/world.h) and prints a
// summary as JSON on stdout. docs/reliability.md has its figures.
//
//   soak [--schedules N] [--first SEED] [--seconds S] [--keep-going]
//
// Ends with status 1 when a schedule fails; its seed is replayed with
// FERRY_SEED=SEED FERRY_TRACE=1 bin/move_simulation_test.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "simulation/world.h"

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  std::uint64_t schedules = 10'000'000, first = 1;
  double limit = 0;
  bool keep_going = false;
  CLI::App app("Simulates whole moves with crashes at every step.", "soak");
  app.add_option("--schedules", schedules, "how many")->capture_default_str();
  app.add_option("--first", first, "seed of the first; the others follow")->capture_default_str();
  app.add_option("--seconds", limit, "end after so much time; 0: when all are done")
      ->capture_default_str();
  app.add_flag("--keep-going", keep_going, "also after a failure");
  CLI11_PARSE(app, argc, argv);

  const auto began = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  ferry::simulation::Totals sum;
  std::vector<std::uint64_t> failed;
  for (std::uint64_t seed = first; seed < first + schedules; ++seed) {
    if (limit > 0 && seed % 256 == 0 && seconds() > limit) break;
    ferry::simulation::World world({.seed = seed});
    const std::string failure = world.run();
    sum += world.totals();
    if (failure.empty()) continue;
    failed.push_back(seed);
    std::fprintf(stderr, "soak: seed %llu: %s\n", static_cast<unsigned long long>(seed),
                 failure.c_str());
    if (!keep_going) break;
  }
  std::printf("{\"first_seed\": %llu, \"seconds\": %.1f, \"per_second\": %.0f, \"failed\": [",
              static_cast<unsigned long long>(first), seconds(),
              static_cast<double>(sum.schedules) / seconds());
  for (std::size_t i = 0; i < failed.size(); ++i) {
    std::printf("%s%llu", i > 0 ? ", " : "", static_cast<unsigned long long>(failed[i]));
  }
  std::printf("], \"totals\": %s}\n", to_json(sum).c_str());
  return failed.empty() ? 0 : 1;
}
