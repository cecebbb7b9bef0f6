#pragma once

#include <sys/types.h>

#include <string>

namespace ferry::host {

// Asks systemd for a scope of its own (systemd.scope(5)) for a tree of processes which ferryd has
// started, and which would share the cgroup of ferryd's service otherwise: its memory and tasks are
// then counted apart, and a host that shuts down tells the program so by SIGTERM. Processes of users
// come into their user's slice. Does nothing where ferryd is no service of systemd's, or where the
// tree has a cgroup of its own. Throws Failure when systemd refuses.
void give_scope(pid_t root, const std::string& program);

}  // namespace ferry::host
