#pragma once

#include <sys/types.h>

// A CRIU that is killed in the middle of its dump undoes nothing of what it has done so far. These
// functions undo it, so that the tree that it was dumping goes on.
namespace ferry::host {

// Kills `runner`, which is CRIU or an ancestor of CRIU, with all that it has started. Before that, while CRIU holds the
// processes of the tree still, ends the repair mode of their sockets, in which their next read would fail.
void kill_dump(pid_t runner, pid_t root);

// Lets TCP connections of the tree that CRIU has stopped (repair mode) go on.
void end_repair(pid_t root);

// Takes CRIU's lock out of the network that the tree is in, and nothing else.
void remove_network_lock(pid_t root);

// Lets the processes in the cgroup of the root go on.
void thaw(pid_t root);

}  // namespace ferry::host
