#pragma once

#include "rnic/engine/timers.h"
#include "transport/types.h"

namespace ferry::rnic {

// How the progress thread sleeps, for the engine, which wakes it. Under the engine's lock.
class ThreadSleep {
 public:
  void begins(transport::Time until, bool watches_full_port) {
    asleep_ = true;
    sockets_changed_ = false;
    until_ = until;
    watches_full_port_ = watches_full_port;
  }
  void ends() { asleep_ = false; }
  // There are others from now on, which the thread must watch.
  void sockets_changed() { sockets_changed_ = true; }

  bool asleep() const { return asleep_; }
  // Whether it looks within `time`.
  bool looks_within(transport::Time time, transport::Time now) const {
    return !asleep_ || until_ - now <= time;
  }
  // Whether it watches less than it must.
  bool misses_socket(bool port_full) const {
    return sockets_changed_ || (port_full && !watches_full_port_);
  }
  // Past one of these deadlines.
  bool oversleeps(const transport::Deadlines& next) const {
    return next.strict < until_ ||
           (next.lenient != transport::kNever && next.lenient + Timers::kLenience < until_);
  }

 private:
  transport::Time until_ = transport::kNever;
  bool asleep_ = false;
  bool sockets_changed_ = false;
  bool watches_full_port_ = false;
};

}  // namespace ferry::rnic
