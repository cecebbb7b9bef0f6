#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "rnic/engine/completion_queue.h"
#include "transport/types.h"

namespace ferry::rnic {

// The events of an RNIC's CQs: which are to be raised, and when. Used under the engine's lock, but
// for armed() and disarmed(), which any thread may call.
class CompletionEvents {
 public:
  void armed() { ++armed_; }
  void disarmed() { --armed_; }

  // An armed CQ got a completion: its event is raised when the lock is released, so that the
  // program that wakes finds all completions that came together, and is not woken for each of them.
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
  // When the next event that is held back is due; kNever: none is.
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

  // A pass has received packets: notes whether that raises events.
  void received(transport::Time now) {
    if (!notified_.empty()) eventful_until_ = now + kEventful;
  }
  // Whether the program waits for events, or did lately: such a program does not answer at once.
  bool eventful(transport::Time now) const {
    return armed_.load(std::memory_order_relaxed) > 0 || now < eventful_until_;
  }

  // A CQ overflowed: its QPs and XRC SRQs go to the error state when the current work is done.
  void overflowed() { overflow_pending_ = true; }
  bool overflow_pending() const { return overflow_pending_; }
  void overflow_handled() { overflow_pending_ = false; }

 private:
  // For this time after an event no acknowledgement is held (reply_habit.h).
  static constexpr transport::Time kEventful = std::chrono::milliseconds(10);

  std::vector<CompletionQueue*> notified_;
  std::vector<CompletionQueue*> moderated_;
  transport::Time eventful_until_{0};
  bool overflow_pending_ = false;
  std::atomic<int> armed_{0};  // how many CQs are
};

}  // namespace ferry::rnic
