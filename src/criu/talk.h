#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "agent/protocol.h"

// How CRIU's plugin and action script ask the ferryd of this host (agent/protocol.h).
namespace ferry::criu {

// Sends one request and waits for its DONE, `timeout_ms` at most (< 0: for ever). Gives 0 or errno:
// there is no ferryd, or it went away.
int ask(agent::MessageType type, std::span<const std::byte> body, int timeout_ms,
        agent::Done* reply);

// True when the process has an RDMA device of Ferry's open: the library's agent thread runs in it.
bool uses_ferry(pid_t pid);

// True when any process of the tree does.
bool tree_uses_ferry(pid_t root);

}  // namespace ferry::criu
