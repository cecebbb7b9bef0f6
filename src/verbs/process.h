#pragma once

#include <mutex>
#include <vector>

#include "agent/agent.h"
#include "agent/registry.h"
#include "verbs/objects.h"

namespace ferry::verbs {

// What this process has once. Made when the first device, or rdma_cm, is opened, and never destroyed: threads run
// until the very end. A child after fork() gets a new one.
struct Process {
  Process();
  agent::Registry registry;
  agent::Agent agent;
  std::mutex mutex;
  std::vector<Context*> contexts;  // all that are open
  // Held while an XRC domain is opened, also as long as a device is away: so `mutex`, which ends that, may not be.
  std::mutex opening_xrcd;
};

Process& process();

}  // namespace ferry::verbs
