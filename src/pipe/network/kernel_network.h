#pragma once

#include <sys/types.h>

#include <memory>

#include "pipe/network/network.h"

namespace ferry::pipe {

// The kernel's account of the network namespace that process `pid` is in. `pidfd` is the same
// process: it says that the number has not become another process's meanwhile. Null: the process has
// ended, or this one may not enter the namespace.
std::shared_ptr<NetworkNamespace> network_of(pid_t pid, int pidfd);

}  // namespace ferry::pipe
