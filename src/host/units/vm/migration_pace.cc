#include "host/units/vm/migration_pace.h"

#include <algorithm>

namespace ferry::host {
namespace {

// Seconds before the end of the first pass: QEMU's answers come late on a busy host.
constexpr double kBeforeEnd = 0.08;
constexpr double kShrinks = 0.7;  // a round that leaves more than this part of the one before

double seconds(MigrationPace::Time time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

double MigrationPace::ms_for(double bytes) const {
  return best_rate_ > 0 ? bytes / best_rate_ * 1e3 : 0;
}

double MigrationPace::left_ms() const {
  return ms_for(static_cast<double>(last_.left) + write_rate_ * seconds(last_.at - begun_));
}

bool MigrationPace::next(const Sample& sample) {
  const bool is_new_round = sample.round > last_.round;
  const double passed = seconds(sample.at - last_.at);
  if (!is_new_round && passed > 0 && sample.left < last_.left) {
    fall_rate_ = std::max(fall_rate_, static_cast<double>(last_.left - sample.left) / passed);
  }
  best_rate_ = std::max(best_rate_, sample.rate);
  last_ = sample;
  if (is_new_round) begun_ = sample.at;
  if (best_rate_ > 0 && sample.round == 1 && fall_rate_ > 0 &&
      static_cast<double>(sample.left) < fall_rate_ * kBeforeEnd) {
    is_ready_ = left_ms() <= wanted_ms_;
  }
  if (sample.round >= 2 && is_new_round) {
    const auto before = static_cast<double>(written_);
    written_ = sample.left;
    const bool shrinks = before == 0 || static_cast<double>(written_) <= kShrinks * before;
    is_ready_ = left_ms() <= wanted_ms_ || !shrinks || sample.round > kMostRounds;
  }
  return is_ready_;
}

}  // namespace ferry::host
