#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "agent/protocol.h"
#include "host/journal/process_slots.h"

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
  virtual std::optional<ResumeSlots> wake(pid_t inner_pid) = 0;
  virtual void resumed(pid_t inner_pid, const agent::Resumed& resumed) = 0;

  // True when the program's runtime restores it by itself (Unit::is_checkpointed()). Then:
  virtual bool is_checkpointed() const = 0;
  // The runtime's CRIU is about to restore it. Throws Failure when it may not be restored here.
  virtual void need_restorable() const = 0;
  // CRIU has restored this process, and lets it run when the answer is 0. EAGAIN: CRIU asks again;
  // else it leaves the process stopped.
  virtual int restored(pid_t pid) = 0;
};

}  // namespace ferry::host
