#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rnic/engine/lanes.h"
#include "rnic/engine/qp/queue_pair.h"
#include "rnic/engine/qp_table.h"
#include "rnic/engine/resting_qps.h"
#include "rnic/engine/scheduler.h"
#include "rnic/system/environment.h"
#include "transport/movable.h"
#include "transport/types.h"

namespace ferry::rnic {

// An RNIC that stands still for a move, and its QPs that rest (resting_qps.h). Under the engine's
// lock, but for suspended().
class Suspension {
 public:
  Suspension(Environment& environment, const Lanes& lanes, const QpTable& qps, Scheduler& scheduler)
      : environment_(environment), lanes_(lanes), qps_(qps), scheduler_(scheduler) {}

  // While suspended packets are neither taken nor sent.
  void set_suspended(bool suspended) { mode_ = suspended ? Mode::kSuspended : Mode::kServing; }
  bool suspended() const { return mode() == Mode::kSuspended; }
  // Neither suspended nor are there QPs that rest still.
  bool is_over() const { return mode() == Mode::kServing; }
  bool resumes_resting() const { return mode() == Mode::kResuming; }

  // As Scheduler::touch(), of one that rests as well: it does not any more.
  void touch(QueuePair* qp) {
    if (qp->turn != Turn::kNone) {
      if (transport::kMovable && qp->turn == Turn::kResting) disturb(qp);
      if (!transport::kMovable || qp->turn == Turn::kTouched) return;
    }
    scheduler_.touch(qp);
  }

  // begin_rest(), rest() until it is false; the stop is set_suspended(), detach takes the entries of
  // resting QPs; after the resume of those that do not rest, resume_resting().
  void begin_rest(transport::Time now);
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
  // When the next ones are resumed, beside a program that wants the engine too.
  transport::Time next() const { return resumes_resting() ? resume_at_ : transport::kNever; }
  [[gnu::cold]] void resume_some(transport::Time now);
  // Nobody rests after it.
  void wake_all();
  // How many of its RNIC's epochs a QP that rests has not been told of.
  std::uint32_t epochs_ahead() const;

  void added(QueuePair* qp) { resting_.added(qp); }
  void removed(QueuePair* qp) { resting_.removed(qp); }

 private:
  // kResuming: serving, and there are QPs that rest still.
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
  transport::Time resume_at_{};  // of the next ones
  bool by_rollback_ = false;
};

}  // namespace ferry::rnic
