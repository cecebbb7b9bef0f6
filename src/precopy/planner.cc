#include "precopy/planner.h"

#include <algorithm>

namespace ferry::precopy {
namespace {

constexpr std::uint64_t kMeasurable = 1 << 20;  // fewer bytes say nothing about the rate

double seconds(std::chrono::nanoseconds time) {
  return std::max(std::chrono::duration<double>(time).count(), 1e-9);
}

}  // namespace

Planner::Next Planner::after(const Round& round) {
  ++rounds_;
  time_ += round.time;
  if (rate_ == 0 || round.sent >= kMeasurable)
    rate_ = static_cast<double>(round.sent) / seconds(round.time - round.waited);
  dirty_rate_ = static_cast<double>(round.left) / seconds(round.time);
  blackout_ = settings_.stop;
  if (rate_ > 0)
    blackout_ += std::chrono::duration<double>(static_cast<double>(round.left) / rate_);

  // The first round sends what there is; only those that follow can help or not.
  const bool helped = rounds_ == 1 || static_cast<double>(round.left) <=
                                          settings_.shrinks * static_cast<double>(least_);
  const auto next = helped || !round.can_be_faster ? Next::kRound : Next::kFasterRound;
  if (helped) {
    in_vain_ = 0;
  } else if (next == Next::kRound) {
    ++in_vain_;
  }
  least_ = rounds_ == 1 ? round.left : std::min(least_, round.left);
  if (rounds_ == 1 || blackout_ < best_) {
    best_ = blackout_;
    best_at_ = time_;
  }

  if (settings_.blackout) {
    if (blackout_ <= *settings_.blackout) {
      // What a socket takes at once, the network carries while the sender waits: then the rate seems too high.
      return round.waited > std::chrono::nanoseconds(0) ? Next::kFullRound : Next::kStop;
    }
    if (settings_.stop > *settings_.blackout) return Next::kGiveUp;  // however little is left
    const bool waited = time_ - best_at_ >= settings_.wait && next == Next::kRound;
    return waited || time_ >= settings_.longest ? Next::kGiveUp : next;
  }
  const bool enough = round.left <= settings_.enough || in_vain_ >= settings_.patience ||
                      time_ >= settings_.longest;
  return enough ? Next::kStop : next;
}

}  // namespace ferry::precopy
