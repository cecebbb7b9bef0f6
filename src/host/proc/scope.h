#pragma once

#include <sys/types.h>

#include <string>

namespace ferry::host {

// Asks systemd to give a tree of processes that ferryd has started a scope (systemd.scope(5)) of its own. Otherwise the
// tree would share the cgroup of ferryd's service. In its scope the tree's memory and tasks are counted apart, and a
// host that shuts down tells the program so by SIGTERM. Processes of users come into their user's slice. Does nothing
// where ferryd is no service of systemd's, or where the tree has a cgroup of its own. Throws Failure when systemd
// refuses.
void give_scope(pid_t root, const std::string& program);

}  // namespace ferry::host
