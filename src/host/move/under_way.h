#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "agent/protocol.h"

namespace ferry::host {

// One side of a move, as the move's processes and CRIU's action scripts talk to it.
class UnderWay {
 public:
  virtual ~UnderWay() = default;

  // True for a process of this move. `pid`: as in ferryd's own pid namespace; another process may
  // have the same number in its own.
  virtual bool has_process(pid_t pid) const = 0;
  // `root`: the root of the tree that CRIU has, as the script says. Gives the script's exit status.
  virtual int action(const std::string& name, pid_t root) = 0;
  // The answer to AWAKE; nothing: STAY.
  virtual std::optional<agent::Resume> wake(pid_t inner_pid) = 0;
  virtual void resumed(pid_t inner_pid, const agent::Resumed& resumed) = 0;
};

}  // namespace ferry::host
