#pragma once

#include <cstddef>

#include "relay/relay.h"

// rdma_cm of the kernel, for a program that has devices of the kernel alone: /dev/infiniband/rdma_cm, with the relay in
// front of it.
namespace ferry::verbs {

// Whether the program gets the relay: it was given devices by name. (If one of Ferry's own is among them, the program
// does not see the kernel's rdma_cm at all.)
bool relays_rdma_cm();
// A descriptor, or -1 and errno.
int open_relayed_cm(int flags);
// Null when the program has not opened rdma_cm of the kernel.
relay::Relay* relay_if_any();
// 0 or an errno value; EBADF: something else has this number now. GET_EVENT blocks unless O_NONBLOCK.
int run_relayed(relay::Relay& relay, int descriptor, const void* buffer, std::size_t size,
                bool is_get_event);

// In a child after fork().
void relayed_cm_in_child();

}  // namespace ferry::verbs
