#pragma once

#include <sys/types.h>

#include <vector>

#include "base/unique_fd.h"

namespace ferry::host {

// The TCP sockets that a process has open and that do not listen, as ferryd's own descriptors of
// the same sockets.
std::vector<UniqueFd> tcp_sockets_of(pid_t pid);

}  // namespace ferry::host
