#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <string>

namespace ferry::host {

// The ids of the threads of the tree below `root` whose processes are in ferryd's own pid
// namespace. CRIU gives each of these threads its id again, or fails.
std::set<pid_t> ids_of_host(pid_t root);

// At the destination `host`: gives one line about an id that is not free there; empty: all are
// free.
using IsTaken = std::function<bool(pid_t id)>;
std::string find_taken(const std::set<pid_t>& ids, const std::string& host,
                       const std::string& program, const IsTaken& is_taken);
// True when a process or a thread of this host has the id.
bool is_taken_here(pid_t id);

}  // namespace ferry::host
