#include <cerrno>
#include <utility>

#include "device/gids.h"
#include "virtual/talks/talks.h"

// How a QP and its peer are introduced to each other when they are connected after one of them has
// moved (letters.h). Until then the QP is apart: the program sees it connected, the device does not.
namespace ferry::virt {

bool Talks::has_news(const Qp& qp, const ibv_ah_attr& path) {
  ibv_gid known{};
  if (device_.numbers == nullptr || !device_.gids.source_of(path, &known)) return false;
  const Introduction introduction = introduction_of(qp, path);
  return device::address_of(introduction.gid) != device::address_of(known) ||
         introduction.qpn != qp.qpn() || !introduction.rkeys.empty() ||
         !introduction.window_rkeys.empty() || !introduction.srqns.empty();
}

void Talks::moved(std::set<port::Address> gids) {
  std::lock_guard lock(moved_mutex_);
  moved_gids_ = std::move(gids);
}

bool Talks::must_introduce(const Qp& qp, const ibv_qp_attr& attributes) {
  if (attributes.ah_attr.is_global == 0) return false;
  if (!has_news(qp, attributes.ah_attr)) {
    std::lock_guard lock(moved_mutex_);
    if (!moved_gids_.contains(device::address_of(attributes.ah_attr.grh.dgid))) return false;
  }
  return !is_own(attributes);
}

// The program's ibv_modify_qp is under way, so no stop begins, and the device behind is there. mutex_ keeps
// letters out meanwhile.
int Talks::introduce(Qp& qp, const ibv_qp_attr& attributes, int mask) {
  std::lock_guard lock(mutex_);
  device_.learn_gids();
  ibv_gid known{};
  if (!device_.gids.source_of(attributes.ah_attr, &known)) return EINVAL;
  if (const int error = qp.keep_apart(attributes, mask)) return error;
  begin_meeting(qp, talks_[&qp]);
  return 0;
}

void Talks::begin_meeting(Qp& qp, Talk& talk) {
  if (has_news(qp, qp.attributes().ah_attr)) {
    talk.is_meeting = true;
    talk.attempt = ++attempts_;
    write_suspend(qp, talk);
  } else {
    talk.step = Talk::Step::kSuspended;
    write(qp, LetterKind::kSeek);
  }
}

int Talks::part(Qp& qp, const std::function<int()>& reset) {
  std::lock_guard lock(mutex_);
  const auto found = talks_.find(&qp);
  if (!qp.has_object()) {
    // A peer that has moved as well waits for an answer to its SWITCH.
    const bool is_asked = found != talks_.end() && found->second.peer.has_value();
    if (const int error = is_asked ? make_late(qp) : late_.make(qp)) return error;
    qp.rename_by(*device_.numbers);
  }
  // The peer waits for the end of a move in which this QP takes no part any more.
  if (found != talks_.end() && std::exchange(found->second.is_told, false))
    write(qp, LetterKind::kGoOn);
  if (const int error = reset()) return error;
  markers_.destroy_window(qp);
  forget(qp);
  return 0;
}

// If this end has told the peer of the move of this context, the peer waits for the end of that move.
void Talks::take_seek(Qp& qp, Talk& talk) {
  if (is_stopped(qp) || talk.is_told || is_in_the_midst(qp)) return;
  if (talk.is_meeting) {  // SUSPEND came to the peer before its program had connected its QP
    write_suspend(qp, talk);
  } else if (!has_news(qp, qp.attributes().ah_attr)) {
    if (qp.is_apart()) connect_alone(qp, talk);  // a peer that seeks is where its GID says
    write(qp, LetterKind::kGoOn);
  }
}

void Talks::connect_alone(Qp& qp, Talk& talk) {
  talk.step = Talk::Step::kNone;
  talk.is_meeting = false;
  if (qp.connect() != 0 || !stops_.bind_windows(qp)) qp.fail();
  let_go(qp, talk);
}

// Connects alone, unless the peer has answered before, so that it is only on its way to another host, or
// the peer needs the news of this end.
void Talks::take_back(Qp& qp, Talk& talk) {
  miss(qp, talk);
  if (!qp.is_apart() || is_stopped(qp) || talk.is_told || is_in_the_midst(qp)) return;
  if (!has_news(qp, qp.attributes().ah_attr)) connect_alone(qp, talk);
}

}  // namespace ferry::virt
