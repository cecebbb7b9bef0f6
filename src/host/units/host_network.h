#pragma once

#include <sys/types.h>

#include <string>

// What programs and containers on their host's network have at the host's addresses, which stay
// where they are.
namespace ferry::host {

// Why the processes of the tree cannot go on at another host's addresses, in one line; empty: they
// can. A connection over loopback moves if both ends are in the tree.
std::string obstacle_on_host_network(pid_t root);

}  // namespace ferry::host
