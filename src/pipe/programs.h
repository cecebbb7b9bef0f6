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

// When a process has begun, as Process has it. 0: there is none with that number.
std::uint64_t start_of(pid_t pid);

// A pidfd. Empty: the process has ended.
UniqueFd open_process(const Process& process);

// Nothing: it has ended, or its network namespace cannot be entered.
std::optional<Program> program_behind(int socket);

}  // namespace ferry::pipe
