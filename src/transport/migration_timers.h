#pragma once

#include <algorithm>

#include "transport/types.h"

namespace ferry::transport {

struct Backoff {
  Time at = kNever;
  Time delay{};
  void start(Time now, Time first) {
    at = now;
    delay = first;
  }
  // After one repetition at `now`.
  void again(Time now, Time last) {
    at = now + delay;
    delay = std::min(delay * 2, last);
  }
  void stop() { at = kNever; }
};

// When migration messages are repeated. A part of its own, since the error state stops them and
// knows nothing else of migration, which itself may put the QP into the error state.
struct MigrationTimers {
  Backoff hello, probe, resume;
  Time limit_at = kNever;  // of Paused or of an unanswered RESUME

  void stop() {
    hello.stop();
    probe.stop();
    resume.stop();
    limit_at = kNever;
  }
};

}  // namespace ferry::transport
