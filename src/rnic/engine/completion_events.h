#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "rnic/engine/completion_queue.h"
#include "transport/types.h"

namespace ferry::rnic {

// What the CQs of an RNIC have for the program beside completions, and when. Under the engine's
// lock, but for armed() and disarmed().
class CompletionEvents {
 public:
  void armed() { ++armed_; }
  void disarmed() { --armed_; }

  // A CQ that was armed got a completion: its event is raised when the lock is released, so that a
  // program that wakes finds all that came together, and is not woken for each of it.
  void notify(CompletionQueue* cq) { notified_.push_back(cq); }
  void raise() {
    for (CompletionQueue* cq : notified_) cq->raise();
    notified_.clear();
  }

  // CQs that hold events back (CompletionQueue::moderate).
  void add_moderated(CompletionQueue* cq) {
    if (std::find(moderated_.begin(), moderated_.end(), cq) == moderated_.end()) {
      moderated_.push_back(cq);
    }
  }
  void forget_moderated(CompletionQueue* cq) { std::erase(moderated_, cq); }
  // When the next event that is held back is due.
  transport::Time next() const {
    transport::Time next = transport::kNever;
    for (const CompletionQueue* cq : moderated_) next = std::min(next, cq->event_at());
    return next;
  }
  void run_timers(transport::Time now) {
    for (CompletionQueue* cq : moderated_) {
      if (cq->event_at() <= now) cq->raise_held();
    }
  }

  // A pass has received: did it raise events?
  void received(transport::Time now) {
    if (!notified_.empty()) eventful_until_ = now + kEventful;
  }
  // A program that waits for events does not answer at once.
  bool eventful(transport::Time now) const {
    return armed_.load(std::memory_order_relaxed) > 0 || now < eventful_until_;
  }

  // A CQ overflowed: its QPs and XRC SRQs go to the error state when the current work is done.
  void overflowed() { overflow_pending_ = true; }
  bool overflow_pending() const { return overflow_pending_; }
  void overflow_handled() { overflow_pending_ = false; }

 private:
  // No acknowledgement is held for so long after an event (reply_habit.h).
  static constexpr transport::Time kEventful = std::chrono::milliseconds(10);

  std::vector<CompletionQueue*> notified_;
  std::vector<CompletionQueue*> moderated_;
  transport::Time eventful_until_{0};
  bool overflow_pending_ = false;
  std::atomic<int> armed_{0};  // CQs
};

}  // namespace ferry::rnic
