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
  // Sets the time of the next repetition, after one at `now`.
  void again(Time now, Time last) {
    at = now + delay;
    delay = std::min(delay * 2, last);
  }
  void stop() { at = kNever; }
};

// When migration messages are repeated. The timers are a part of their own, since ErrorState stops
// them and knows nothing else of migration, which itself uses ErrorState.
struct MigrationTimers {
  Backoff hello, probe, resume;
  Time limit_at = kNever;  // end of Paused, or of an unanswered RESUME

  void stop() {
    hello.stop();
    probe.stop();
    resume.stop();
    limit_at = kNever;
  }
};

}  // namespace ferry::transport
