#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rnic/engine/endpoints/lanes.h"
#include "rnic/engine/qp/queue_pair.h"
#include "rnic/engine/qp_table.h"
#include "rnic/engine/resting_qps.h"
#include "rnic/engine/scheduler.h"
#include "rnic/system/environment.h"
#include "transport/movable.h"
#include "transport/types.h"

namespace ferry::rnic {

// Whether an RNIC stands still for a move, and which of its QPs rest (resting_qps.h). Used under
// the engine's lock, but for suspended().
//
// The order of a stop: begin_rest(); rest() until it returns false; set_suspended(true);
// take_resting_entries(). Of a resume: set_suspended(false); each restless QP is resumed;
// resume_resting().
class Suspension {
 public:
  Suspension(Environment& environment, const Lanes& lanes, const QpTable& qps, Scheduler& scheduler)
      : environment_(environment), lanes_(lanes), qps_(qps), scheduler_(scheduler) {}

  // While suspended, packets are neither taken nor sent.
  void set_suspended(bool suspended) { mode_ = suspended ? Mode::kSuspended : Mode::kServing; }
  bool suspended() const { return mode() == Mode::kSuspended; }
  // Not suspended, and no resting QP is left to be resumed.
  bool is_over() const { return mode() == Mode::kServing; }
  bool resumes_resting() const { return mode() == Mode::kResuming; }

  // As Scheduler::touch(), but the QP may rest: that ends its rest.
  void touch(QueuePair* qp) {
    if (qp->turn != Turn::kNone) {
      if (transport::kMovable && qp->turn == Turn::kResting) disturb(qp);
      if (!transport::kMovable || qp->turn == Turn::kTouched) return;
    }
    scheduler_.touch(qp);
  }

  void begin_rest(transport::Time now);
  // Lets some more of the idle QPs rest. False: no QP is left to look at.
  bool rest();
  template <typename F>
  void for_each_restless(F&& function) {
    const std::vector<QueuePair*>* restless = resting_.restless();
    for (QueuePair* qp : restless != nullptr ? *restless : qps_.all()) function(*qp);
  }
  std::vector<RestingQps::Entry> take_resting_entries(std::size_t lane) {
    return resting_.take_entries(lane);
  }
  void resume_resting(bool rollback, transport::Time now);
  // When the next resting QPs are resumed, between which the program has the engine; kNever: none
  // are.
  transport::Time next() const { return resumes_resting() ? resume_at_ : transport::kNever; }
  [[gnu::cold]] void resume_some(transport::Time now);
  // Ends the rest of all QPs.
  void wake_all();
  // By how many epochs a resting QP is behind its RNIC.
  std::uint32_t epochs_ahead() const;

  void added(QueuePair* qp) { resting_.added(qp); }
  void removed(QueuePair* qp) { resting_.removed(qp); }

 private:
  // kResuming: it serves, while resting QPs are resumed in turn.
  enum class Mode : std::uint8_t { kServing, kSuspended, kResuming };
  Mode mode() const {
    return transport::kMovable ? mode_.load(std::memory_order_relaxed) : Mode::kServing;
  }
  void disturb(QueuePair* qp);
  void resume_in_turn(unsigned most);

  Environment& environment_;
  const Lanes& lanes_;
  const QpTable& qps_;
  Scheduler& scheduler_;
  RestingQps resting_;
  std::atomic<Mode> mode_{Mode::kServing};
  transport::Time resume_at_{};  // when the next resting QPs are resumed
  bool by_rollback_ = false;
};

}  // namespace ferry::rnic
