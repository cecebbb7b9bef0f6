#include "rnic/engine/suspension.h"

#include <chrono>

namespace ferry::rnic {
namespace {

// QPs are laid to rest and resumed beside a program that wants the engine too: so many under one
// hold of the lock, and after so many resumed ones none for kResumeInterval.
constexpr unsigned kRestPerTurn = 64;
constexpr unsigned kResumedPerTurn = 64;
constexpr transport::Time kResumeInterval = std::chrono::microseconds(50);

}  // namespace

void Suspension::disturb(QueuePair* qp) {
  resting_.disturbed(qp);
  if (is_over()) return;
  qp->transport().stop_untold();
  if (resumes_resting()) qp->resume(by_rollback_, environment_.now());
}

void Suspension::begin_rest(transport::Time now) {
  if (resumes_resting()) {
    wake_all();
    scheduler_.transmit(now, false);
  }
  resting_.begin(qps_.all());
}

bool Suspension::rest() {
  return !suspended() && resting_.settle(kRestPerTurn, lanes_);
}

void Suspension::resume_resting(bool rollback, transport::Time now) {
  resting_.end();
  by_rollback_ = rollback;
  resume_at_ = now;
  mode_ = Mode::kResuming;
}

void Suspension::resume_in_turn(unsigned most) {
  for (; most > 0; --most) {
    QueuePair* qp = resting_.next();
    if (qp == nullptr) {
      mode_ = Mode::kServing;
      return;
    }
    touch(qp);
  }
}

void Suspension::resume_some(transport::Time now) {
  if (resume_at_ > now) return;
  resume_in_turn(kResumedPerTurn);
  resume_at_ = now + kResumeInterval;
}

void Suspension::wake_all() {
  if (resumes_resting()) return resume_in_turn(QpTable::kMaxQps + 1);
  for (QueuePair* qp : qps_.all()) {
    if (qp->turn == Turn::kResting) touch(qp);
  }
}

std::uint32_t Suspension::epochs_ahead() const {
  if (is_over()) return 0;
  return resumes_resting() && by_rollback_ ? 2 : 1;
}

}  // namespace ferry::rnic
