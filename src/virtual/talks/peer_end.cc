#include <utility>

#include "virtual/talks/talks.h"

// The talks of QPs whose peers move.
namespace ferry::virt {
namespace {

constexpr int kSetUpAtOnce = 4;  // QPs that are prepared before letters are delivered again

}  // namespace

void Talks::begin_suspension(Qp& qp, Talk& talk) {
  moves_.cm_news(device::CmNews::kPeerMoves, qp.qpn());
  // Makes a late QP now, so that its SWITCH goes ahead of SUSPENDED. Later, SWITCH would come when the peer
  // is about to stop.
  if (!is_stopped_ && suspending_ == Suspending::kNo && !qp.has_object()) make_late(qp);
  if (is_stopped_ || talk.awaits_peer || qp.is_apart() || talk.step == Talk::Step::kSuspended) {
    // The device has no request of this QP to do: both ends move or have moved, or the QP is apart or
    // suspended already.
    suspended(qp, talk);
    return;
  }
  if (talk.leave == Talk::Leave::kDrain) {
    talk.leave = Talk::Leave::kAsked;  // the QP is held; when it is suspended, it may leave
  } else {
    stops_.hold(qp);
  }
  talk.step = Talk::Step::kDrain;
}

bool Talks::drain_step(Qp& qp, Talk& talk) {
  if (!stops_.is_drained(qp)) return true;
  suspended(qp, talk);
  return false;
}

void Talks::suspended(Qp& qp, Talk& talk) {
  talk.is_in_use = qp.is_in_use();
  talk.step = Talk::Step::kSuspended;
  write_suspended(qp, talk);
  const bool is_needed_soon = talk.peer_goes_on || talk.is_in_use;
  if (is_needed_soon && !is_stopped(qp) && !talk.awaits_peer && !qp.is_apart())
    unprepared_.insert(&qp);
}

// While the peer stands still. Letters that wait go first.
bool Talks::set_up_partners() {
  for (int i = 0; i < kSetUpAtOnce && letters_.empty(); ++i) {
    stops_.end_former();
    if (unprepared_.empty()) continue;
    stops_.prepare(**unprepared_.begin());
    unprepared_.erase(unprepared_.begin());
  }
  return !unprepared_.empty() || stops_.has_former();
}

bool Talks::flush_step(Qp& qp, Talk& talk) {
  if (!stops_.is_replaced(qp, *talk.peer)) return true;
  talk.peer.reset();
  talk.step = Talk::Step::kConnected;
  write(qp, LetterKind::kSwitched);
  return false;
}

// GO_ON has come: the peer has not left its device.
void Talks::go_on(Qp& qp, Talk& talk) {
  if (talk.step != Talk::Step::kDrain && talk.step != Talk::Step::kSuspended) return;
  if (qp.is_apart()) {
    if (is_stopped(qp) || has_news(qp, qp.attributes().ah_attr)) {
      talk.step = Talk::Step::kNone;  // this end is still to be introduced
    } else {
      connect_alone(qp, talk);
    }
    return;
  }
  if (std::exchange(talk.step, Talk::Step::kNone) == Talk::Step::kDrain) stops_.resume_queues(qp);
  if (is_stopped_) return;
  let_go(qp, talk);
  unprepared_.erase(&qp);
  stops_.clear(qp);
}

// READY is the answer to SWITCHED also of a peer that has moved itself, and whose own SWITCHED was lost.
void Talks::take_ready(Qp& qp, Talk& talk) {
  if (talk.step == Talk::Step::kConnected) {
    talk.step = Talk::Step::kNone;
  } else if (talk.is_met && talk.asks_again) {
    talk.is_met = false;
  } else {
    return;
  }
  let_go(qp, talk);
}

void Talks::let_go(Qp& qp, Talk& talk) {
  if (talk.awaits_peer || talk.is_met || talk.step != Talk::Step::kNone) return;
  stops_.resume(qp);
  moves_.cm_news(device::CmNews::kPeerStays, qp.qpn());
}

void Talks::take_introduction(Qp& qp, Talk& talk, LetterKind kind,
                              const Introduction& introduction) {
  const bool switches = kind == LetterKind::kSwitch;
  if (!switches && !talk.awaits_peer && !talk.is_met && !is_stopped(qp)) {
    write(qp, LetterKind::kReady);  // again: the first one has not come
    return;
  }
  if (!talk.awaits_peer && !(switches ? talk.step == Talk::Step::kSuspended : talk.is_met)) return;
  if (introduction.is_detached) moves_.cm_news(device::CmNews::kDetached, qp.qpn());
  if (is_stopped(qp)) {
    talk.peer = introduction;  // resume() or make_late() will take it up
    return;
  }
  if (talk.awaits_peer) {
    // This end has a new QP, and perhaps the other end as well.
    talk.awaits_peer = talk.asks_again = false;
    talk.is_met = true;
    stops_.connect(qp, introduction);
  } else if (switches && qp.is_apart()) {
    stops_.connect(qp, introduction);
    talk.step = Talk::Step::kConnected;
    write(qp, LetterKind::kSwitched);
    return;
  } else if (switches) {
    unprepared_.erase(&qp);
    stops_.flush(qp);
    talk.peer = introduction;
    talk.step = Talk::Step::kFlush;
    return;
  }
  write(qp, switches ? LetterKind::kSwitched : LetterKind::kReady);
  if (switches) {
    talk.step = Talk::Step::kNone;  // the peer has moved: it needs no suspension any more
    return;
  }
  talk.is_met = false;
  let_go(qp, talk);
}

}  // namespace ferry::virt
