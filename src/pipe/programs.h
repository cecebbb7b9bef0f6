#pragma once

#include <sys/types.h>

#include <optional>

#include "base/unique_fd.h"
#include "pipe/driver/session.h"

namespace ferry::pipe {

// Who is at the other end of a connected socket, by what the kernel says of it.
struct Program {
  Peer peer;
  UniqueFd process;  // a pidfd: readable when the program has ended
};

// Nothing: it has ended, or its network namespace cannot be entered.
std::optional<Program> program_behind(int socket);

}  // namespace ferry::pipe
