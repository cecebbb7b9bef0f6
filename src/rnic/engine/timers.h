#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "rnic/engine/qp/queue_pair.h"
#include "rnic/engine/timing/timer_heap.h"
#include "transport/types.h"

namespace ferry::rnic {

// The deadlines of an RNIC's QPs. Used under the engine's lock.
class Timers {
 public:
  // Makes room for `count` QPs, so that schedule() does not allocate.
  void reserve(std::size_t count) {
    strict_.reserve(count);
    lenient_.reserve(count);
  }
  void schedule(QueuePair* qp) {
    const transport::Deadlines at = qp->deadlines();
    strict_.schedule(static_cast<StrictTimer*>(qp), at.strict);
    lenient_.schedule(static_cast<LenientTimer*>(qp), at.lenient);
  }
  void remove(QueuePair* qp) {
    strict_.remove(static_cast<StrictTimer*>(qp));
    lenient_.remove(static_cast<LenientTimer*>(qp));
  }

  // The next deadlines of any QP, or earlier times.
  transport::Deadlines next() const { return {strict_.next(), lenient_.next()}; }

  // Serves the QPs whose deadlines are due, and calls `touch` for each.
  template <typename Touch>
  void run(transport::Time now, Touch touch) {
    run<StrictTimer>(strict_, &transport::Deadlines::strict, now, touch);
    run<LenientTimer>(lenient_, &transport::Deadlines::lenient, now, touch);
  }

 private:
  template <typename Timer, typename Touch>
  static void run(TimerHeap& timers, transport::Time transport::Deadlines::*deadline,
                  transport::Time now, Touch& touch) {
    while (TimerEntry* entry = timers.due(now)) {
      auto* qp = static_cast<QueuePair*>(static_cast<Timer*>(entry));
      if (qp->deadlines().*deadline <= now) {
        qp->handle_timeout(now);
        touch(qp);
      }
      const transport::Time next = qp->deadlines().*deadline;
      if (next == transport::kNever) {
        timers.remove(entry);
      } else {
        timers.put_off(entry, std::max(next, now + std::chrono::microseconds(1)));
      }
    }
  }

  TimerHeap strict_, lenient_;
};

}  // namespace ferry::rnic
