#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim_host.h"
#include "workload.h"

// Two or three RNICs on a simulated network with loss, duplication, reordering and delay,
// applications that post random requests on random connections, and moves at random points.
// Everything follows from the seed.
namespace ferry::rnic::testing {

struct SimulationOptions {
  std::uint64_t seed = 1;
  unsigned requests_per_endpoint = 40;
  unsigned max_moves = 4;
  bool trace = false;  // every packet on stdout
};

struct SimulationResult {
  std::vector<std::string> errors;
  unsigned moves = 0, rollbacks = 0;
  unsigned unacked_moves = 0;  // with requests in flight at the stop
  std::size_t requests = 0;
  std::uint64_t retransmitted = 0;
};

SimulationResult simulate(const SimulationOptions& options);

}  // namespace ferry::rnic::testing
