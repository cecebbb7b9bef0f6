#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "rnic/engine/completion_events.h"
#include "rnic/engine/qp/queue_pair.h"
#include "rnic/engine/timing/post_gatherer.h"
#include "rnic/engine/timing/thread_sleep.h"
#include "transport/types.h"

namespace ferry::rnic {

// Packets that could leave, and wait for others to leave with them: acknowledgements for the answer
// that will follow at once (ReplyHabit), requests for the next ones (PostGatherer). Used under the
// engine's lock.
class HeldPackets {
 public:
  HeldPackets(const CompletionEvents& events, const ThreadSleep& thread)
      : events_(events), thread_(thread) {}

  // When packets that are held must leave; kNever: none is.
  transport::Time until() const { return until_; }
  // As until(), for a thread that falls asleep: counts also the packets that the program's polls
  // will hold meanwhile, if they have held some lately.
  transport::Time at_most_until(transport::Time now) {
    const bool held = std::exchange(held_lately_, false) && !events_.eventful(now);
    return std::min(until_, held ? now + kLongest : transport::kNever);
  }

  // Whether a pass may hold acknowledgements. If the program ceases to poll, the thread sends what
  // was held; so the thread must not sleep for long meanwhile.
  bool may_hold(bool by_thread, transport::Time now) const {
    return !events_.eventful(now) && (by_thread || thread_.looks_within(kLongest, now));
  }
  // Called when all that was held is looked at anew.
  void transmission_begins() { until_ = transport::kNever; }
  // Whether the touched QP has only an acknowledgement to send, which is held. `may`: the result of
  // may_hold().
  bool hold(QueuePair* qp, bool may, transport::Time now) {
    const bool answers = qp->transport().only_acknowledges() && qp->reply_habit.asked(now);
    held_lately_ |= answers;
    if (!answers || !may) return false;
    until_ = std::min(until_, qp->reply_habit.until());
    return true;
  }

  // The program has posted to a QP. True: the packets may wait (PostGatherer::keep). `under_way`: a
  // packet of the QP is under way, and will be acknowledged sooner or later. What is kept leaves at
  // the latest when an answer wakes the thread, or when the parked thread looks.
  bool keep(const QueuePair* qp, bool under_way, transport::Time now) {
    const bool acknowledged =
        under_way && (thread_.looks_within(kLongest, now) || qp->transport().awaits_answer());
    if (!gatherer_.keep(now, acknowledged)) return false;
    until_ = std::min(until_, now + kLongest);
    return true;
  }
  PostGatherer& gatherer() { return gatherer_; }

 private:
  // While the progress thread listens, nothing is held for longer than this.
  static constexpr transport::Time kLongest = std::chrono::milliseconds(1);

  const CompletionEvents& events_;
  const ThreadSleep& thread_;
  PostGatherer gatherer_;
  transport::Time until_ = transport::kNever;
  bool held_lately_ = false;  // held something, or would have, since at_most_until()
};

}  // namespace ferry::rnic
