#pragma once

#include <string>
#include <vector>

#include "agent/protocol.h"
#include "host/peers/messages.h"

namespace ferry::host {

// Binds IDs of this host's rdma_cm of the kernel as a program has them that is about to come, all at the same time, and
// destroys them again. Throws Failure, one line: there is no rdma_cm here, or what it refuses.
void try_rdma_cm(const std::string& host, const std::string& program,
                 const std::vector<agent::RdmaCmBound>& bound,
                 const std::string& device = "/dev/infiniband/rdma_cm");

void to_message(const std::vector<agent::RdmaCmBound>& bound, v1::RdmaCm* message);
// Throws Failure for an address that is none.
std::vector<agent::RdmaCmBound> from_message(const v1::RdmaCm& message);

}  // namespace ferry::host
