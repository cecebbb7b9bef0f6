#include "host/history/move_counters.h"

#include <set>
#include <string>

#include "host/history/history.h"

namespace ferry::host {

void MoveCounters::begun(const v1::PastMove& move) {
  std::lock_guard lock(mutex_);
  ++counts_.begun[move.direction()];
}

void MoveCounters::ended(const v1::PastMove& move) {
  const v1::MoveReport& parts = move.parts();
  const std::string& direction = move.direction();
  const bool leaves = direction == direction_of(Side::kSource);
  std::lock_guard lock(mutex_);
  ++counts_.ended[{direction, move.outcome()}];
  const std::set<std::string> good{"moved", "returned", "ended"};
  if (!good.contains(move.outcome())) {
    ++counts_.failed[{direction, move.step().empty() ? "unknown" : move.step()}];
  }
  (leaves ? counts_.sent_bytes : counts_.received_bytes) += parts.image_bytes();
  if (!leaves || move.outcome() != "moved" || parts.blackout_ms() <= 0) return;
  const double seconds = parts.blackout_ms() / 1000;
  ++counts_.blackout_count;
  counts_.blackout_seconds += seconds;
  for (std::size_t i = 0; i < kBlackouts.size(); ++i) {
    if (seconds > kBlackouts[i]) continue;
    ++counts_.blackouts[i];
    break;
  }
}

MoveCounters::Counts MoveCounters::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace ferry::host
