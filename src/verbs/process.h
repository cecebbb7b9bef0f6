#pragma once

#include <mutex>
#include <vector>

#include "agent/agent.h"
#include "agent/registry.h"
#include "verbs/objects.h"
#include "verbs/xrc_names.h"

namespace ferry::verbs {

// What this process has once. Made when the first device, or rdma_cm, is opened, and never destroyed: threads run
// until the very end. A child after fork() gets a new one.
struct Process {
  Process();
  agent::Registry registry;
  agent::Agent agent;
  // Guards `contexts` and what they were imported by. Whoever holds it waits for no context.
  std::mutex mutex;
  std::vector<Context*> contexts;  // all that are open
  XrcNames xrc_names;
};

Process& process();

}  // namespace ferry::verbs
