#include <utility>

#include "virtual/talks/talks.h"

// How idle QPs of a context that is about to move leave the device before the stop, while the QPs that are in use still
// run. The stop then finds late QPs (late_qps.h), and has nothing to do for them.
//
//   watch   the device tells over which QPs nothing goes
//   idle    the peers of these QPs are suspended; a QP that neither end uses is emptied, and its object destroyed
//   all     the peers of the other QPs are suspended
//
// A move that is given up makes the QPs again as after a move: under another number of the device, so that their peers
// connect anew.
namespace ferry::virt {
namespace {

// QPs that are emptied at the same time: threads that post receives to these wait meanwhile.
constexpr std::size_t kLeaveAtOnce = 16;

}  // namespace

void Talks::suspend_peers() {
  const Calls::Call call(calls_);
  device_.learn_gids();
  std::lock_guard lock(mutex_);
  suspending_ = Suspending::kWatch;
  first_attempt_ = attempts_ + 1;
  std::vector<Qp*> qps = shadows_.all<Qp>();
  std::erase_if(qps, [&](Qp* qp) { return !can_leave_early(*qp); });
  quiet_.look(qps);
  watched_until_ = std::chrono::steady_clock::now() + watch_;
  if (qps.empty() || watch_ == watch_.zero()) suspend_idle();
}

bool Talks::can_leave_early(Qp& qp) {
  if (!qp.has_object() || qp.is_apart() || !has_remote_peer(qp) || is_in_the_midst(qp) ||
      windows_.has_bound_to(qp.qpn()))
    return false;
  const ibv_qp_state state = qp.inner->state();
  return state == IBV_QPS_RTR || state == IBV_QPS_RTS;
}

void Talks::suspend_idle() {
  suspending_ = Suspending::kIdle;
  for (Qp* qp : shadows_.all<Qp>()) {
    if (!can_leave_early(*qp) || !quiet_.is_quiet(*qp)) continue;
    talks_[qp].leave = Talk::Leave::kAsked;
    tell(*qp);
    leaving_.push_back(qp);
  }
  if (leaving_.empty()) suspend_all();
}

void Talks::suspend_all() {
  suspending_ = Suspending::kAll;
  for (Qp* qp : shadows_.all<Qp>()) {
    if (!has_remote_peer(*qp) || is_in_the_midst(*qp)) continue;
    const auto found = talks_.find(qp);
    const bool is_asked =
        found != talks_.end() && found->second.is_told && found->second.attempt >= first_attempt_;
    if (!is_asked) tell(*qp);
  }
}

bool Talks::leave_some() {
  if (suspending_ == Suspending::kWatch) {
    if (std::chrono::steady_clock::now() < watched_until_) return true;
    suspend_idle();
  }
  std::size_t under_way = 0;
  std::erase_if(leaving_, [&](Qp* qp) {
    Talk& talk = talks_[qp];
    if (talk.leave == Talk::Leave::kAsked && under_way >= kLeaveAtOnce) return false;
    if (leave_step(*qp, talk)) return true;
    if (talk.leave != Talk::Leave::kAsked) ++under_way;
    return false;
  });
  if (suspending_ == Suspending::kIdle && leaving_.empty()) suspend_all();
  return under_way > 0;
}

// The device has done all requests of the QP.
void Talks::flush_or_stay(Qp& qp, Talk& talk) {
  if (qp.is_in_use() || windows_.has_bound_to(qp.qpn())) {
    talk.leave = Talk::Leave::kNo;
    let_go(qp, talk);
  } else {
    stops_.flush(qp);
    talk.leave = Talk::Leave::kFlush;
  }
}

bool Talks::leave_step(Qp& qp, Talk& talk) {
  using Leave = Talk::Leave;
  if (talk.leave == Leave::kAsked) {
    if (!talk.peer_is_suspended || talk.step == Talk::Step::kDrain) return false;
    if (talk.peer_is_in_use || !can_leave_early(qp)) {
      talk.leave = Leave::kNo;
    } else if (talk.step == Talk::Step::kSuspended) {
      flush_or_stay(qp, talk);  // the peer is about to move as well, and has had this end suspended
    } else {
      stops_.hold(qp);
      talk.leave = Leave::kDrain;
    }
  }
  if (talk.leave == Leave::kDrain) {
    if (!stops_.is_drained(qp)) return false;
    flush_or_stay(qp, talk);
  }
  if (talk.leave == Leave::kFlush && stops_.is_left(qp, late_)) talk.leave = Leave::kNo;
  return talk.leave == Leave::kNo;
}

bool Talks::is_leaving(Qp& qp) {
  const auto found = talks_.find(&qp);
  return found != talks_.end() && found->second.leave == Talk::Leave::kFlush;
}

// Receives of a QP that is being flushed have begun to come back: it leaves, and is made again.
void Talks::keep_idle() {
  std::erase_if(leaving_, [&](Qp* qp) {
    Talk& talk = talks_[qp];
    if (talk.leave == Talk::Leave::kFlush) return false;
    if (std::exchange(talk.leave, Talk::Leave::kNo) == Talk::Leave::kDrain) {
      stops_.resume_queues(*qp);
      let_go(*qp, talk);
    }
    return true;
  });
}

}  // namespace ferry::virt
