#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "party.h"
#include "sim_host.h"
#include "unreliable.h"
#include "workload.h"

// Two or three RNICs on a simulated network with loss, duplication, reordering and delay,
// applications that post random requests on random connections, and moves at random points.
// Everything follows from the seed. RC: workload.h; UC and UD: unreliable.h.
namespace ferry::rnic::testing {

struct SimulationOptions {
  std::uint64_t seed = 1;
  ibv_qp_type service = IBV_QPT_RC;  // or IBV_QPT_UC, IBV_QPT_UD
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
  std::uint64_t delivered = 0, lost = 0;  // messages of UC and UD
  std::uint64_t window_writes = 0, window_endings = 0;
  unsigned refused_writes = 0;  // through a window that was invalidated  // RC: memory windows
};

SimulationResult simulate(const SimulationOptions& options);

}  // namespace ferry::rnic::testing
