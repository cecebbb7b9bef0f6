#include "host/checkpoint/attempt.h"

#include <utility>

#include "host/journal/decision_log.h"
#include "host/peers/this_host.h"

namespace ferry::host {

Attempt::Attempt(Attempts& all, const ThisHost& host, Kind kind, Progress::Tell tell,
                 std::function<bool()> is_awaited)
    : all_(all),
      host_(host),
      kind_(kind),
      is_awaited_(std::move(is_awaited)),
      id_(new_move_id()),
      progress_(id_, std::move(tell)) {
  std::lock_guard lock(all_.mutex_);
  all_.all_[id_] = this;
}

Attempt::~Attempt() {
  std::lock_guard lock(all_.mutex_);
  all_.all_.erase(id_);
}

void Attempt::need_wanted() {
  need_to_stay(host_);
  std::lock_guard lock(mutex_);
  if (state_ == State::kOpen && !is_awaited_()) state_ = State::kGivenUp;
  if (state_ != State::kGivenUp) return;
  throw GivenUp(kind_ == Kind::kCheckpoint
                    ? "the checkpoint is given up: nothing of it is left, and the programs go on"
                    : "the restart is given up: none of its programs runs");
}

void Attempt::decide() {
  need_wanted();
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::kOpen) state_ = State::kDecided;
  }
  need_wanted();
}

void Attempt::give_up() {
  std::lock_guard lock(mutex_);
  if (state_ == State::kOpen) state_ = State::kGivenUp;
  if (state_ == State::kGivenUp) return progress_.give_up();
  throw Failure(
      kind_ == Kind::kCheckpoint
          ? "the checkpoint is complete, and cannot be given up any more"
          : "the restart is decided, and cannot be given up any more: the programs go on");
}

void Attempts::give_up(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto found = all_.find(id);
  if (found == all_.end()) throw Failure("it has ended already, and cannot be given up any more");
  found->second->give_up();
}

}  // namespace ferry::host
