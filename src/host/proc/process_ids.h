#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <string>

namespace ferry::host {

// Of the threads of the tree below `root` that have our process ids, not those of a pid namespace of
// their own. CRIU gives each of them its id again, or fails.
std::set<pid_t> ids_of_host(pid_t root);

// At the destination, which is `host`: one line about an id that is not free there; empty: all are.
using IsTaken = std::function<bool(pid_t id)>;
std::string find_taken(const std::set<pid_t>& ids, const std::string& host,
                       const std::string& program, const IsTaken& is_taken);
// True when a process or a thread of this host has the id.
bool is_taken_here(pid_t id);

}  // namespace ferry::host
