#include <algorithm>
#include <cerrno>
#include <utility>

#include "device/gids.h"
#include "virtual/context.h"

// How a context and the peers of its QPs go through a move together (letters.h).
namespace ferry::virt {
namespace {

constexpr std::chrono::milliseconds kCallsEnd{2};  // those that are under way

}  // namespace

bool Context::has_remote_peer(Qp& qp) {
  const ibv_qp_state state = qp.attributes().qp_state;
  if (qp.is_ud()) return false;
  return (state == IBV_QPS_RTR || state == IBV_QPS_RTS) && !is_own(qp.attributes());
}

void Context::write(Qp& qp, LetterKind kind, std::uint32_t attempt) {
  device::Letter letter;
  const ibv_qp_attr attributes = qp.attributes();
  ibv_gid source{};
  if (!gids_.source_of(attributes.ah_attr, &source)) return;
  letter.from = {device::address_of(source), qp.qpn()};
  letter.to = {device::address_of(attributes.ah_attr.grh.dgid), attributes.dest_qp_num};
  LetterBody body{kind, attempt, {}};
  if (kind == LetterKind::kSwitch || kind == LetterKind::kSwitched)
    body.introduction = introduction_of(qp, attributes.ah_attr);
  letter.bytes = encode(body);
  letters_.push_back(std::move(letter));
  moves_.has_letters();
}

Introduction Context::introduction_of(const Qp& qp, const ibv_ah_attr& path) {
  Introduction introduction;
  introduction.qpn = qp.inner->qpn();
  ibv_gid known{};
  if (gids_.source_of(path, &known)) introduction.gid = gids_.real_of(known);
  for_each<Mr>([&](const Mr& mr) {
    if (mr.init.pd == qp.init().pd && mr.rkey() != 0 && mr.rkey() != mr.inner->rkey())
      introduction.rkeys.push_back({mr.rkey(), mr.inner->rkey()});
  });
  return introduction;
}

void Context::take_letters(std::vector<device::Letter>* out) {
  std::lock_guard lock(talks_mutex_);
  out->insert(out->end(), std::make_move_iterator(letters_.begin()),
              std::make_move_iterator(letters_.end()));
  letters_.clear();
}

// --- The end that moves

void Context::tell(Qp& qp) {
  Talk& talk = talks_[&qp];
  talk.is_told = true;
  talk.is_meeting = false;
  talk.attempt = ++attempts_;
  write(qp, LetterKind::kSuspend, talk.attempt);
}

void Context::suspend_peers() {
  const Calls::Call call(calls_);
  if (!gids_.are_learned()) gids_.learn(*inner_);
  std::lock_guard lock(talks_mutex_);
  for (Qp* qp : all<Qp>()) {
    if (has_remote_peer(*qp) && !is_in_the_midst(*qp)) tell(*qp);
  }
}

void Context::release_peers() {
  std::lock_guard lock(talks_mutex_);
  if (is_stopped_) return;  // resume() does it
  for (auto& [qp, talk] : talks_) {
    if (talk.is_told) release_peer(*qp, talk);
  }
}

// A peer of a QP that is apart has other reasons to wait than a move that was given up.
void Context::release_peer(Qp& qp, Talk& talk) {
  talk.is_suspended = false;
  const bool told = std::exchange(talk.is_told, false);
  const bool is_apart = qp.is_apart() && !is_in_the_midst(qp);
  if (told && !(is_apart && has_news(qp, qp.attributes().ah_attr))) write(qp, LetterKind::kGoOn);
  if (is_apart && !talk.peer.has_value()) begin_meeting(qp, talk);
}

bool Context::has_suspended_peer(Qp& qp) {
  const auto found = talks_.find(&qp);
  return found != talks_.end() && found->second.is_suspended;
}

bool Context::is_in_the_midst(Qp& qp) {
  const auto found = talks_.find(&qp);
  if (found == talks_.end()) return false;
  const Talk& talk = found->second;
  return talk.awaits_peer || talk.is_met || talk.step == Talk::Step::kFlush ||
         talk.step == Talk::Step::kConnected;
}

bool Context::peers_are_suspended() {
  std::lock_guard lock(talks_mutex_);
  bool all_are = true;
  for (Qp* qp : all<Qp>()) {
    if (is_in_the_midst(*qp)) {
      all_are = false;
    } else if (has_remote_peer(*qp) && !has_suspended_peer(*qp)) {
      all_are = false;
      if (!talks_[qp].is_told) tell(*qp);  // a talk of before has just ended
    }
  }
  return all_are;
}

void Context::forget_talk(Qp& qp) {
  const auto found = talks_.find(&qp);
  const bool is_late = late_.erase(&qp) > 0;
  if (found == talks_.end() && !is_late) return;
  sweep_queues(qp);  // else completions of markers would be the program's
  if (found != talks_.end()) {
    const Talk::Step step = found->second.step;
    if (step == Talk::Step::kDrain || step == Talk::Step::kFlush) resume_queues(qp);
    talks_.erase(found);
  }
  qp.abandon();
}

// Peers may have asked for this end's suspension, too: what it had to send is done now.
void Context::stopped() {
  is_stopped_ = true;
  late_.clear();
  for (auto& [qp, talk] : talks_) {
    if (talk.step != Talk::Step::kDrain) continue;
    resume_queues(*qp);
    talk.step = Talk::Step::kSuspended;
    write(*qp, LetterKind::kSuspended, talk.peers_attempt);
  }
}

void Context::resume_talk(Qp& qp, Talk& talk) {
  if (is_made_anew_) {
    // Its peer does not know the new QP yet.
    talk.is_told = talk.is_suspended = talk.is_meeting = false;
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

void Context::resume(bool /*rollback*/) {
  if (inner_ == nullptr) return;  // unpark() failed: the program's calls wait on
  std::lock_guard lock(talks_mutex_);
  is_stopped_ = false;
  for (Srq* srq : all<Srq>()) srq->resume();
  for (Qp* qp : all<Qp>()) {
    if (is_made_anew_ && qp->is_ud() && (qp->pass_receives() != 0 || qp->connect() != 0))
      qp->fail();
    const auto found = talks_.find(qp);
    if (found == talks_.end()) {
      resume_qp(*qp);
    } else if (!has_remote_peer(*qp)) {
      talks_.erase(found);  // the program has set it to ERR
      resume_qp(*qp);
    } else {
      resume_talk(*qp, found->second);
    }
  }
  if (std::exchange(is_drained_, false)) {
    for (Cq* cq : all<Cq>()) cq->resume();
    for (Channel* channel : all<Channel>()) channel->resume();
  }
  is_made_anew_ = false;
  calls_.go_on();
}

// --- The peer

void Context::stop_queues(Qp& qp) {
  std::vector<Gate*> gates;
  for (device::Cq* cq : {qp.init().send_cq, qp.init().recv_cq}) {
    if (cq == nullptr) continue;
    static_cast<Cq*>(cq)->stop();
    gates.push_back(&static_cast<Cq*>(cq)->gate());
  }
  gates.push_back(&qp.send_gate());
  gates.push_back(&qp.receive_gate());
  Gate::shut(gates);
}

void Context::resume_queues(Qp& qp) {
  for (device::Cq* cq : {qp.init().send_cq, qp.init().recv_cq}) {
    if (cq != nullptr) static_cast<Cq*>(cq)->resume();
  }
}

void Context::begin_suspension(Qp& qp, Talk& talk) {
  if (is_stopped_ || talk.awaits_peer || qp.is_apart() || talk.step == Talk::Step::kSuspended) {
    // The device has nothing of this one's to do: both ends move, or have moved.
    talk.step = Talk::Step::kSuspended;
    write(qp, LetterKind::kSuspended, talk.peers_attempt);
    return;
  }
  if (!gids_.are_learned()) gids_.learn(*inner_);
  stop_queues(qp);
  qp.hold();
  late_.erase(&qp);
  talk.step = Talk::Step::kDrain;
}

void Context::sweep_queues(Qp& qp) {
  for (device::Cq* cq : {qp.init().send_cq, qp.init().recv_cq}) {
    if (cq == nullptr) continue;
    static_cast<Cq*>(cq)->sweep();
    if (Channel* channel = static_cast<Cq*>(cq)->channel()) channel->collect();
  }
}

bool Context::drain_step(Qp& qp, Talk& talk) {
  sweep_queues(qp);
  if (make_window(qp) != 0) return true;
  if (qp.inner->state() == IBV_QPS_RTS && !sends_are_done(qp)) return true;
  sweep_queues(qp);
  resume_queues(qp);
  talk.step = Talk::Step::kSuspended;
  write(qp, LetterKind::kSuspended, talk.peers_attempt);
  return false;
}

bool Context::flush_step(Qp& qp, Talk& talk) {
  sweep_queues(qp);
  if (qp.has_receive_queue() && !qp.receives_are_back()) return true;
  if (!calls_.stop(std::chrono::steady_clock::now() + kCallsEnd)) return true;
  const int error = replace(qp);
  calls_.go_on();
  resume_queues(qp);
  const Introduction peer = *std::exchange(talk.peer, std::nullopt);
  destroy_window(qp);
  if (error == 0 || qp.reset() == 0) {
    connect_with_peer(qp, peer);
  } else {
    qp.fail();
  }
  talk.step = Talk::Step::kConnected;
  write(qp, LetterKind::kSwitched);
  return false;
}

// A QP that is connected anew may keep the route that it had to the peer's former place (rdma_rxe).
int Context::replace(Qp& qp) try {
  if (numbers_ == nullptr) numbers_ = std::make_unique<Numbers>();
  device::Qp* made = nullptr;
  device::QpInit init = qp.remade();
  if (const int error = inner_->create_qp(&init, &made)) return error;
  if (collides(*made)) {  // it would have to be made again and again
    inner_->destroy(made);
    return EEXIST;
  }
  for (device::Cq* cq : {qp.init().send_cq, qp.init().recv_cq}) {
    if (cq != nullptr) static_cast<Cq*>(cq)->rename_by(*numbers_);
  }
  device::Qp* const old = qp.inner;
  numbers_->virtual_qpns.erase(old->qpn());
  qp.leave_device();
  inner_->destroy(old);
  qp.enter_device(*made);
  numbers_->qpns.set(qp.qpn(), made->qpn());
  numbers_->virtual_qpns.set(made->qpn(), qp.qpn());
  for (Qp* each : all<Qp>()) each->rename_attributes_by(*numbers_);
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

void Context::connect_with_peer(Qp& qp, const Introduction& peer) {
  Gate* const gates[] = {&qp.receive_gate()};
  Gate::shut(gates);
  {
    const auto sends = qp.send_gate().lock();
    const auto receives = qp.receive_gate().lock();
    qp.meet(peer);
  }
  if (qp.connect() != 0 || qp.pass_receives() != 0) qp.fail();
}

// The peer has not left its device.
void Context::go_on(Qp& qp, Talk& talk) {
  if (talk.step != Talk::Step::kDrain && talk.step != Talk::Step::kSuspended) return;
  if (qp.is_apart()) {
    if (is_stopped_ || has_news(qp, qp.attributes().ah_attr)) {
      talk.step = Talk::Step::kNone;  // this end is still to be introduced
    } else {
      connect_alone(qp, talk);
    }
    return;
  }
  if (std::exchange(talk.step, Talk::Step::kNone) == Talk::Step::kDrain) resume_queues(qp);
  if (!is_stopped_) let_go(qp, talk);
}

// The QP goes on, unless this end waits for its peer, or the peer has asked for its suspension.
void Context::let_go(Qp& qp, Talk& talk) {
  if (!talk.awaits_peer && !talk.is_met && talk.step == Talk::Step::kNone) resume_qp(qp);
}

void Context::resume_qp(Qp& qp) {
  if (!qp.resume()) late_.insert(&qp);
}

void Context::take_introduction(Qp& qp, Talk& talk, LetterKind kind,
                                const Introduction& introduction) {
  const bool switches = kind == LetterKind::kSwitch;
  if (!switches && !talk.awaits_peer && !talk.is_met && !is_stopped_) {
    write(qp, LetterKind::kReady);  // once more: that one has not come
    return;
  }
  if (!talk.awaits_peer && !(switches ? talk.step == Talk::Step::kSuspended : talk.is_met)) return;
  if (is_stopped_) {
    talk.peer = introduction;  // resume() comes back to it
    return;
  }
  if (talk.awaits_peer) {
    // This end has a new QP, and perhaps the other one as well.
    talk.awaits_peer = false;
    talk.is_met = true;
    connect_with_peer(qp, introduction);
  } else if (switches && qp.is_apart()) {
    connect_with_peer(qp, introduction);
    talk.step = Talk::Step::kConnected;
    write(qp, LetterKind::kSwitched);
    return;
  } else if (switches) {
    stop_queues(qp);
    bool flushes = false;
    if (qp.flush(&flushes) != 0) qp.fail();
    qp.stay_away();
    talk.peer = introduction;
    talk.step = Talk::Step::kFlush;
    return;
  }
  write(qp, switches ? LetterKind::kSwitched : LetterKind::kReady);
  if (switches) {
    talk.step = Talk::Step::kNone;  // the other one has moved: it needs no suspension any more
    return;
  }
  talk.is_met = false;
  let_go(qp, talk);
}

int Context::deliver(const device::Letter& letter) {
  LetterBody body;
  const bool is_returned = letter.bytes.empty();
  if (!is_returned && !parse(letter.bytes, &body)) return EINVAL;
  std::lock_guard lock(talks_mutex_);
  const std::vector<Qp*> qps = all<Qp>();
  const auto found = std::find_if(qps.begin(), qps.end(), [&](const Qp* qp) {
    const ibv_qp_attr attributes = qp->attributes();
    const device::Letter::End peer{device::address_of(attributes.ah_attr.grh.dgid),
                                   attributes.dest_qp_num};
    return qp->qpn() == letter.to.qpn && peer == letter.from;
  });
  if (found == qps.end()) return ENOENT;
  Qp& qp = **found;
  Talk& talk = talks_[&qp];
  if (is_returned) {
    returned(qp, talk);
    return 0;
  }
  switch (body.kind) {
    case LetterKind::kSuspend:
      if (talk.step != Talk::Step::kNone && talk.step != Talk::Step::kSuspended) break;
      talk.peers_attempt = body.attempt;
      begin_suspension(qp, talk);
      break;
    case LetterKind::kSuspended: suspended(qp, talk, body.attempt); break;
    case LetterKind::kGoOn: go_on(qp, talk); break;
    case LetterKind::kSwitch:
    case LetterKind::kSwitched: take_introduction(qp, talk, body.kind, body.introduction); break;
    case LetterKind::kReady:
      if (talk.step != Talk::Step::kConnected) break;
      talk.step = Talk::Step::kNone;
      let_go(qp, talk);
      break;
    case LetterKind::kSeek: sought(qp, talk); break;
  }
  return 0;
}

std::optional<LetterKind> Context::unanswered(const Qp& qp, const Talk& talk) const {
  if (talk.awaits_peer) return LetterKind::kSwitch;
  if (talk.is_meeting) return LetterKind::kSuspend;
  if (talk.step == Talk::Step::kConnected) return LetterKind::kSwitched;
  if (talk.step != Talk::Step::kSuspended) return std::nullopt;
  return qp.is_apart() ? LetterKind::kSeek : LetterKind::kSuspended;
}

bool Context::awaits_letters() {
  std::lock_guard lock(talks_mutex_);
  return std::any_of(talks_.begin(), talks_.end(), [&](const auto& each) {
    return unanswered(*each.first, each.second).has_value();
  });
}

void Context::repeat_letters() {
  std::lock_guard lock(talks_mutex_);
  if (is_stopped_ || inner_ == nullptr) return;
  for (auto& [qp, talk] : talks_) {
    const auto kind = unanswered(*qp, talk);
    if (!kind) continue;
    const bool answers = *kind == LetterKind::kSuspended;
    write(*qp, *kind, answers ? talk.peers_attempt : talk.attempt);
  }
}

bool Context::progress() {
  std::lock_guard lock(talks_mutex_);
  if (is_stopped_ || inner_ == nullptr) return false;
  bool more = false;
  std::erase_if(late_, [&](Qp* qp) {
    sweep_queues(*qp);
    return qp->resume();
  });
  more |= !late_.empty();
  for (auto& [qp, talk] : talks_) {
    if (talk.step == Talk::Step::kDrain) more |= drain_step(*qp, talk);
    if (talk.step == Talk::Step::kFlush) more |= flush_step(*qp, talk);
  }
  return more;
}

}  // namespace ferry::virt
