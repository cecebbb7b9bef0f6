#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/protocol.h"
#include "host/proc/process_facts.h"

namespace ferry::host {

// Throws Failure, one line: what of the kernel's rdma_cm in a process of `program` cannot move along. `opened`: its
// files of rdma_cm; `rdma_cm`: what the process has told after these were looked for; `address_moves`: the program's
// addresses come along.
void need_movable_rdma_cm(const std::string& program, pid_t pid,
                          const std::vector<Descriptor>& opened, const agent::RdmaCmStatus& rdma_cm,
                          bool address_moves);

}  // namespace ferry::host
