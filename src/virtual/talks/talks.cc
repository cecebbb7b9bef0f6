#include "virtual/talks/talks.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "device/gids.h"
#include "virtual/queues/shared_receive_queue.h"

// The parts that the talks of both ends share: they write letters, and find the QP that a letter is for.
namespace ferry::virt {

bool Talks::is_own(const ibv_qp_attr& attributes) {
  if (!device_.gids.is_own(attributes.ah_attr)) return false;
  bool found = false;
  shadows_.for_each<Qp>([&](const Qp& qp) { found |= qp.qpn() == attributes.dest_qp_num; });
  return found;
}

bool Talks::has_remote_peer(Qp& qp) {
  const ibv_qp_state state = qp.attributes().qp_state;
  if (qp.is_ud()) return false;
  const auto talk = talks_.find(&qp);
  if (talk != talks_.end() && talk->second.is_alone) return false;
  return (state == IBV_QPS_RTR || state == IBV_QPS_RTS) && !is_own(qp.attributes());
}

bool Talks::is_in_the_midst(Qp& qp) {
  const auto found = talks_.find(&qp);
  if (found == talks_.end()) return false;
  const Talk& talk = found->second;
  return talk.awaits_peer || talk.is_met || talk.step == Talk::Step::kFlush ||
         talk.step == Talk::Step::kConnected;
}

void Talks::write(Qp& qp, LetterKind kind) {
  LetterBody body;
  body.kind = kind;
  write(qp, std::move(body));
}

void Talks::write_suspend(Qp& qp, const Talk& talk) {
  LetterBody body;
  body.kind = LetterKind::kSuspend;
  body.attempt = talk.attempt;
  body.asks_for_use = true;
  body.is_in_use = talk.leave == Talk::Leave::kNo && !talk.is_meeting;
  write(qp, std::move(body));
}

void Talks::write_suspended(Qp& qp, const Talk& talk) {
  LetterBody body;
  body.kind = LetterKind::kSuspended;
  body.attempt = talk.peers_attempt;
  body.asks_for_use = talk.peer_asks_for_use;
  body.is_in_use = talk.peer_asks_for_use && talk.is_in_use;
  write(qp, std::move(body));
}

void Talks::write(Qp& qp, LetterBody body) {
  device::Letter letter;
  const ibv_qp_attr attributes = qp.attributes();
  ibv_gid source{};
  if (device_.context != nullptr) device_.learn_gids();
  if (!device_.gids.source_of(attributes.ah_attr, &source)) return;
  letter.from = {device::address_of(source), qp.qpn()};
  letter.to = {device::address_of(attributes.ah_attr.grh.dgid), attributes.dest_qp_num};
  if (body.kind == LetterKind::kSwitch || body.kind == LetterKind::kSwitched) {
    body.introduction = introduction_of(qp, attributes.ah_attr);
    const auto talk = talks_.find(&qp);
    body.introduction.is_detached = talk != talks_.end() && talk->second.is_detached;
  }
  letter.bytes = encode(body);
  letters_.push_back(std::move(letter));
  moves_.has_letters();
}

void Talks::tell_peer(const device::Letter::End& own, const device::Letter::End& peer,
                      device::CmNews news) {
  std::lock_guard lock(mutex_);
  if (news == device::CmNews::kDetached) {
    const auto found = talks_.find(connected(own.qpn, peer));
    if (found != talks_.end()) found->second.is_detached = true;
    return;
  }
  LetterBody body;
  body.kind = LetterKind::kDisconnected;
  letters_.push_back({own, peer, encode(body)});
  moves_.has_letters();
}

Introduction Talks::introduction_of(const Qp& qp, const ibv_ah_attr& path) {
  Introduction introduction;
  introduction.qpn = qp.inner->qpn();
  ibv_gid known{};
  if (device_.gids.source_of(path, &known)) introduction.gid = device_.gids.real_of(known);
  // By an initiator the peer reaches no memory, by a target that of each PD of which the domain has an SRQ, also of
  // one that is made later.
  std::set<const device::Pd*> pds;
  if (qp.is_xrc_target()) {
    shadows_.for_each<Srq>([&](const Srq& srq) {
      if (srq.xrcd() == qp.init().xrcd && srq.number() != srq.inner->number())
        introduction.srqns.push_back({srq.number(), srq.inner->number()});
    });
    shadows_.for_each<Pd>([&](const Pd& pd) { pds.insert(&pd); });
  } else if (qp.init().type != IBV_QPT_XRC_SEND) {
    pds.insert(qp.init().pd);
  }
  shadows_.for_each<Mr>([&](const Mr& mr) {
    if (pds.contains(mr.init.pd) && mr.rkey() != 0 && mr.rkey() != mr.inner->rkey())
      introduction.rkeys.push_back({mr.rkey(), mr.inner->rkey()});
  });
  for (const device::Pd* pd : pds) {
    for (const Windows::Key& key : windows_.keys_of(pd))
      introduction.window_rkeys.push_back({key.known, key.real});
  }
  return introduction;
}

void Talks::take_letters(std::vector<device::Letter>* out) {
  std::lock_guard lock(mutex_);
  out->insert(out->end(), std::make_move_iterator(letters_.begin()),
              std::make_move_iterator(letters_.end()));
  letters_.clear();
}

Qp* Talks::connected(std::uint32_t qpn, const device::Letter::End& peer) {
  const std::vector<Qp*> qps = shadows_.all<Qp>();
  const auto found = std::find_if(qps.begin(), qps.end(), [&](const Qp* qp) {
    const ibv_qp_attr attributes = qp->attributes();
    return qp->qpn() == qpn && attributes.dest_qp_num == peer.qpn &&
           device::address_of(attributes.ah_attr.grh.dgid) == peer.gid;
  });
  return found != qps.end() ? *found : nullptr;
}

int Talks::deliver(const device::Letter& letter) {
  LetterBody body;
  const bool is_returned = letter.bytes.empty();
  if (!is_returned && !parse(letter.bytes, &body)) return EINVAL;
  std::lock_guard lock(mutex_);
  Qp* const found = connected(letter.to.qpn, letter.from);
  if (found == nullptr) return ENOENT;
  Qp& qp = *found;
  Talk& talk = talks_[&qp];
  if (is_returned) {
    take_back(qp, talk);
    return 0;
  }
  const bool introduces = body.kind == LetterKind::kSwitch || body.kind == LetterKind::kSwitched;
  if (introduces && talk.is_alone) return ENOENT;
  if (body.kind != LetterKind::kDisconnected) {  // the peer has not ended
    talk.missed = Talk::Missed::kNo;
    talk.is_alone = false;
  }
  switch (body.kind) {
    case LetterKind::kSuspend:
      if (talk.step != Talk::Step::kNone && talk.step != Talk::Step::kSuspended) break;
      talk.peers_attempt = body.attempt;
      talk.peer_asks_for_use = body.asks_for_use;
      talk.peer_goes_on = body.is_in_use;
      begin_suspension(qp, talk);
      break;
    case LetterKind::kSuspended: take_suspended(qp, talk, body); break;
    case LetterKind::kGoOn: go_on(qp, talk); break;
    case LetterKind::kSwitch:
    case LetterKind::kSwitched: take_introduction(qp, talk, body.kind, body.introduction); break;
    case LetterKind::kReady: take_ready(qp, talk); break;
    case LetterKind::kSeek: take_seek(qp, talk); break;
    case LetterKind::kDisconnected: moves_.cm_news(device::CmNews::kDisconnected, qp.qpn()); break;
  }
  return 0;
}

std::optional<LetterKind> Talks::unanswered(const Qp& qp, const Talk& talk) {
  if (!qp.has_object() || talk.leave == Talk::Leave::kFlush)
    return std::nullopt;  // make_late() will write the QP's letter
  if (talk.awaits_peer) return LetterKind::kSwitch;
  if (talk.is_meeting) return LetterKind::kSuspend;
  if (talk.is_met || talk.step == Talk::Step::kConnected) return LetterKind::kSwitched;
  if (talk.step != Talk::Step::kSuspended) return std::nullopt;
  return qp.is_apart() ? LetterKind::kSeek : LetterKind::kSuspended;
}

bool Talks::awaits_letters() {
  std::lock_guard lock(mutex_);
  return std::any_of(talks_.begin(), talks_.end(), [&](const auto& each) {
    return unanswered(*each.first, each.second).has_value();
  });
}

void Talks::repeat_letters() {
  std::lock_guard lock(mutex_);
  if (is_stopped_ || device_.context == nullptr) return;
  for (auto& [qp, talk] : talks_) {
    const auto kind = unanswered(*qp, talk);
    if (!kind) continue;
    talk.asks_again = talk.is_met;
    if (talk.missed == Talk::Missed::kOnce) talk.missed = Talk::Missed::kAgain;
    switch (*kind) {
      case LetterKind::kSuspend: write_suspend(*qp, talk); break;
      case LetterKind::kSuspended: write_suspended(*qp, talk); break;
      default: write(*qp, *kind); break;
    }
  }
}

bool Talks::progress() {
  std::lock_guard lock(mutex_);
  if (is_stopped_ || device_.context == nullptr) return false;
  bool more = stops_.resume_late();
  more |= leave_some();
  more |= make_some();  // also those that have just left for a move that was given up
  for (auto& [qp, talk] : talks_) {
    if (talk.step == Talk::Step::kDrain) more |= drain_step(*qp, talk);
    if (talk.step == Talk::Step::kFlush) more |= flush_step(*qp, talk);
  }
  return set_up_partners() || more;
}

void Talks::forget(Qp& qp) {
  late_.forget(qp);
  std::erase(leaving_, &qp);
  unprepared_.erase(&qp);
  stops_.clear(qp);
  const auto found = talks_.find(&qp);
  const bool is_late = stops_.forget_late(qp);
  if (found == talks_.end() && !is_late) return;
  stops_.sweep(qp);  // else the program would get completions of markers
  if (found != talks_.end()) {
    if (found->second.is_told) write(qp, LetterKind::kGoOn);
    const Talk& talk = found->second;
    if (talk.step == Talk::Step::kDrain || talk.step == Talk::Step::kFlush ||
        talk.leave == Talk::Leave::kDrain || talk.leave == Talk::Leave::kFlush)
      stops_.resume_queues(qp);
    talks_.erase(found);
  }
  qp.abandon();
}

}  // namespace ferry::virt
