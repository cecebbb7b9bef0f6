#include <algorithm>
#include <iterator>
#include <utility>

#include "virtual/talks/talks.h"

// The talks of QPs whose context moves.
namespace ferry::virt {
namespace {

constexpr int kMadeAtOnce = 4;  // late QPs that are made before letters are delivered again

}  // namespace

void Talks::tell(Qp& qp) {
  Talk& talk = talks_[&qp];
  talk.is_told = true;
  talk.is_meeting = false;
  talk.attempt = ++attempts_;
  write_suspend(qp, talk);
}

void Talks::release_peers() {
  std::lock_guard lock(mutex_);
  if (is_stopped_) return;  // resume() will release the peers
  suspending_ = Suspending::kNo;
  keep_idle();
  if (!late_.is_empty() || !leaving_.empty()) moves_.has_letters();
  for (auto& [qp, talk] : talks_) {
    if (talk.is_told && !is_stopped(*qp)) release_peer(*qp, talk);
  }
}

// Gives no GO_ON to the peer of a QP that is apart and has news: this peer waits for its introduction, not
// only for the end of the move that was given up.
void Talks::release_peer(Qp& qp, Talk& talk) {
  talk.peer_is_suspended = talk.peer_is_in_use = false;
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
  if (are_idle_leaving()) return false;
  bool all_are = true;
  for (Qp* qp : shadows_.all<Qp>()) {
    if (is_in_the_midst(*qp)) {
      all_are = false;
    } else if (has_remote_peer(*qp) && !has_suspended_peer(*qp)) {
      all_are = false;
      if (!talks_[qp].is_told) tell(*qp);  // an earlier talk has just ended
    }
  }
  return all_are;
}

void Talks::take_suspended(Qp& qp, Talk& talk, const LetterBody& letter) {
  const bool asks = talk.is_told || talk.is_meeting || talk.awaits_peer;
  if (!asks && !is_stopped(qp)) write(qp, LetterKind::kGoOn);  // again: the first one has not come
  if (letter.attempt != talk.attempt) return;
  talk.peer_is_suspended |= talk.is_told;
  talk.peer_is_in_use |= letter.is_in_use;
  if (is_stopped(qp) || !std::exchange(talk.is_meeting, false)) return;
  if (qp.is_apart()) {
    talk.awaits_peer = true;
    write(qp, LetterKind::kSwitch);
  } else {
    write(qp, LetterKind::kGoOn);  // the peer has introduced itself before
  }
}

bool Talks::can_stop() {
  if (are_idle_leaving()) return false;
  for (Qp* qp : shadows_.all<Qp>()) {
    if (is_in_the_midst(*qp) || (has_remote_peer(*qp) && !has_suspended_peer(*qp))) return false;
  }
  return true;
}

// Peers may have asked for the suspension of this end, too: its requests are done now.
void Talks::stopped() {
  is_stopped_ = true;
  stops_.forget_late();
  unprepared_.clear();
  stops_.clear();
  for (auto& [qp, talk] : talks_) {
    if (talk.step != Talk::Step::kDrain) continue;
    stops_.resume_queues(*qp);
    suspended(*qp, talk);
  }
}

bool Talks::can_be_late(Qp& qp) {
  return has_remote_peer(qp) && has_suspended_peer(qp) && !talks_[&qp].peer_is_in_use &&
         !qp.is_in_use() && !windows_.has_bound_to(qp.qpn());
}

int Talks::make_qps() {
  late_.clear();
  std::vector<Qp*> needed = shadows_.all<Qp>();
  std::erase_if(needed, [&](Qp* qp) {
    if (!can_be_late(*qp)) return false;
    late_.add(*qp);
    return true;
  });
  return late_.make(needed);
}

// The QP now goes on like those of resume(); QpStops::connect() gives it the numbers of both devices.
int Talks::make_late(Qp& qp) {
  if (const int error = late_.make(qp)) return error;
  resume_talk(qp, talks_[&qp], /*is_made_anew=*/true);
  return 0;
}

bool Talks::is_needed(const device::Object& object) {
  return late_.any([&](const Qp& qp) {
    const device::QpInit& init = qp.init();
    const device::Object* const needed[] = {init.pd, init.send_cq, init.recv_cq, init.srq,
                                            init.xrcd};
    return std::find(std::begin(needed), std::end(needed), &object) != std::end(needed);
  });
}

bool Talks::make_some() {
  if (suspending_ != Suspending::kNo) return false;
  for (int i = 0; i < kMadeAtOnce; ++i) {
    Qp* const qp = late_.next();
    if (qp == nullptr) break;
    if (make_late(*qp) != 0) {
      late_.refused(*qp);
      break;
    }
  }
  return !late_.is_empty();
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
  suspending_ = Suspending::kNo;
  keep_idle();
  if (!late_.is_empty() || !leaving_.empty()) moves_.has_letters();
  for (Qp* qp : shadows_.all<Qp>()) {
    if (is_stopped(*qp)) continue;
    const auto found = talks_.find(qp);
    if (found == talks_.end()) {
      stops_.resume(*qp);
    } else if (!has_remote_peer(*qp) && !found->second.peer.has_value()) {
      // The program has set the QP to ERR, or its peer is gone.
      if (std::exchange(found->second.is_told, false)) write(*qp, LetterKind::kGoOn);
      if (!found->second.is_alone) talks_.erase(found);
      stops_.resume(*qp);
      moves_.cm_news(device::CmNews::kPeerStays, qp->qpn());
    } else {
      resume_talk(*qp, found->second, is_made_anew);
    }
  }
}

void Talks::resume_talk(Qp& qp, Talk& talk, bool is_made_anew) {
  if (is_made_anew) {
    // The peer does not know the new QP yet.
    talk.is_told = talk.peer_is_suspended = talk.peer_is_in_use = talk.is_meeting = false;
    talk.awaits_peer = true;
    moves_.cm_news(device::CmNews::kPeerMoves, qp.qpn());  // what the peer does about this move
    write(qp, LetterKind::kSwitch);
  } else {
    release_peer(qp, talk);
    if (is_in_the_midst(qp)) return;  // the talk about the peer's move goes on
  }
  if (talk.peer.has_value()) {
    const Introduction peer = *std::exchange(talk.peer, std::nullopt);
    take_introduction(qp, talk, LetterKind::kSwitch, peer);
  } else if (!qp.is_apart()) {
    let_go(qp, talk);
  }
}

}  // namespace ferry::virt
