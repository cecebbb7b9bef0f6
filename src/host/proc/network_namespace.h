#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace ferry::host {

// The path of a process's network namespace: a path that outlives the process, if there is one. Empty: the namespace
// is ferryd's own.
std::string network_of(pid_t pid);

// The inode of the network namespace with this path; 0: there is none.
std::uint64_t inode_of_network(const std::string& path);

}  // namespace ferry::host
