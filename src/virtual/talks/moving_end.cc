#include <utility>

#include "virtual/talks/talks.h"

// The talks of QPs whose context moves.
namespace ferry::virt {

void Talks::tell(Qp& qp) {
  Talk& talk = talks_[&qp];
  talk.is_told = true;
  talk.is_meeting = false;
  talk.attempt = ++attempts_;
  write(qp, LetterKind::kSuspend, talk.attempt);
}

void Talks::suspend_peers() {
  const Calls::Call call(calls_);
  device_.learn_gids();
  std::lock_guard lock(mutex_);
  for (Qp* qp : shadows_.all<Qp>()) {
    if (has_remote_peer(*qp) && !is_in_the_midst(*qp)) tell(*qp);
  }
}

void Talks::release_peers() {
  std::lock_guard lock(mutex_);
  if (is_stopped_) return;  // resume() does it
  for (auto& [qp, talk] : talks_) {
    if (talk.is_told) release_peer(*qp, talk);
  }
}

// A peer of a QP that is apart has other reasons to wait than a move that was given up.
void Talks::release_peer(Qp& qp, Talk& talk) {
  talk.peer_is_suspended = false;
  const bool told = std::exchange(talk.is_told, false);
  const bool is_apart = qp.is_apart() && !is_in_the_midst(qp);
  if (told && !(is_apart && has_news(qp, qp.attributes().ah_attr))) write(qp, LetterKind::kGoOn);
  if (is_apart && !talk.peer.has_value()) begin_meeting(qp, talk);
}

bool Talks::has_suspended_peer(Qp& qp) {
  const auto found = talks_.find(&qp);
  return found != talks_.end() && found->second.peer_is_suspended;
}

bool Talks::peers_are_suspended() {
  std::lock_guard lock(mutex_);
  bool all_are = true;
  for (Qp* qp : shadows_.all<Qp>()) {
    if (is_in_the_midst(*qp)) {
      all_are = false;
    } else if (has_remote_peer(*qp) && !has_suspended_peer(*qp)) {
      all_are = false;
      if (!talks_[qp].is_told) tell(*qp);  // a talk of before has just ended
    }
  }
  return all_are;
}

void Talks::take_suspended(Qp& qp, Talk& talk, std::uint32_t attempt) {
  const bool asks = talk.is_told || talk.is_meeting || talk.awaits_peer;
  if (!asks && !is_stopped_) write(qp, LetterKind::kGoOn);  // once more: that one has not come
  if (attempt != talk.attempt) return;
  talk.peer_is_suspended |= talk.is_told;
  if (is_stopped_ || !std::exchange(talk.is_meeting, false)) return;
  if (qp.is_apart()) {
    talk.awaits_peer = true;
    write(qp, LetterKind::kSwitch);
  } else {
    write(qp, LetterKind::kGoOn);  // the peer's introduction has come before
  }
}

bool Talks::can_stop() {
  for (Qp* qp : shadows_.all<Qp>()) {
    if (is_in_the_midst(*qp) || (has_remote_peer(*qp) && !has_suspended_peer(*qp))) return false;
  }
  return true;
}

// Peers may have asked for this end's suspension, too: what it had to send is done now.
void Talks::stopped() {
  is_stopped_ = true;
  stops_.forget_late();
  for (auto& [qp, talk] : talks_) {
    if (talk.step != Talk::Step::kDrain) continue;
    stops_.resume_queues(*qp);
    talk.step = Talk::Step::kSuspended;
    write(*qp, LetterKind::kSuspended, talk.peers_attempt);
  }
}

std::vector<Qp*> Talks::made_anew() {
  std::vector<Qp*> qps = shadows_.all<Qp>();
  std::erase_if(qps, [&](Qp* qp) {
    const bool waits = has_remote_peer(*qp);  // for SWITCHED
    if (waits) qp->stay_away();
    return waits;
  });
  return qps;
}

void Talks::resume(bool is_made_anew) {
  is_stopped_ = false;
  for (Qp* qp : shadows_.all<Qp>()) {
    const auto found = talks_.find(qp);
    if (found == talks_.end()) {
      stops_.resume(*qp);
    } else if (!has_remote_peer(*qp)) {
      talks_.erase(found);  // the program has set it to ERR
      stops_.resume(*qp);
    } else {
      resume_talk(*qp, found->second, is_made_anew);
    }
  }
}

void Talks::resume_talk(Qp& qp, Talk& talk, bool is_made_anew) {
  if (is_made_anew) {
    // Its peer does not know the new QP yet.
    talk.is_told = talk.peer_is_suspended = talk.is_meeting = false;
    talk.awaits_peer = true;
    write(qp, LetterKind::kSwitch);
  } else {
    release_peer(qp, talk);
    if (is_in_the_midst(qp)) return;  // of a move of the peer, which goes on
  }
  if (talk.peer.has_value()) {
    const Introduction peer = *std::exchange(talk.peer, std::nullopt);
    take_introduction(qp, talk, LetterKind::kSwitch, peer);
  } else if (!qp.is_apart()) {
    let_go(qp, talk);
  }
}

}  // namespace ferry::virt
