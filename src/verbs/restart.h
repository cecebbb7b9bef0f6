#pragma once

#include <cstdint>

#include "agent/protocol.h"

namespace ferry::verbs {

// Written by ferryd (agent/protocol.h).
extern agent::ControlBlock control_block;

// Taken before a blocking call: tells afterwards whether EINTR came from a restore alone. CRIU lets
// blocking calls of the restored threads return EINTR; a program that installed no handler does not
// expect that.
class Interruption {
 public:
  Interruption();
  // True: errno is EINTR, the process was frozen since, and no handler of the program ran on this
  // thread. Then the object starts anew, for the next try of the call.
  bool was_restore();
  // True: errno is EINTR, and all handlers that ran on this thread since have SA_RESTART. poll() ends for them as well,
  // and a call that the kernel starts again for them does not.
  bool would_restart() const;

 private:
  std::uint32_t freezes_;
  std::uint32_t handlers_, interrupting_;
};

}  // namespace ferry::verbs
