#pragma once

#include "rnic/engine/timing/timer_heap.h"
#include "transport/transport.h"
#include "transport/types.h"

namespace ferry::rnic {

// How the progress thread sleeps, so that the engine knows when to wake it. Used under the engine's
// lock.
class ThreadSleep {
 public:
  void begins(transport::Time until, bool watches_full_port) {
    asleep_ = true;
    sockets_changed_ = false;
    until_ = until;
    watches_full_port_ = watches_full_port;
  }
  void ends() { asleep_ = false; }
  // The thread must watch other sockets from now on.
  void sockets_changed() { sockets_changed_ = true; }

  bool asleep() const { return asleep_; }
  // Whether the thread looks within `time`.
  bool looks_within(transport::Time time, transport::Time now) const {
    return !asleep_ || until_ - now <= time;
  }
  // Whether it sleeps without watching all sockets that it must watch.
  bool misses_socket(bool port_full) const {
    return sockets_changed_ || (port_full && !watches_full_port_);
  }
  // Whether it sleeps past one of these deadlines.
  bool oversleeps(const transport::Deadlines& next) const {
    return next.strict < until_ ||
           (next.lenient != transport::kNever && next.lenient + LenientTimer::kLenience < until_);
  }

 private:
  transport::Time until_ = transport::kNever;
  bool asleep_ = false;
  bool sockets_changed_ = false;
  bool watches_full_port_ = false;
};

}  // namespace ferry::rnic
