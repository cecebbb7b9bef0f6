#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

// Decides after each round of copying ahead how it goes on. No I/O, no clock.
namespace ferry::precopy {

struct PlannerSettings {
  using Milliseconds = std::chrono::duration<double, std::milli>;

  std::uint64_t enough = 4ull << 20;  // so little left is not worth another round
  double shrinks = 0.8;   // a round that leaves more than this share of the least so far is in vain
  unsigned patience = 3;  // so many rounds in vain, one after the other, end it
  std::chrono::nanoseconds longest{std::chrono::minutes(10)};  // of all rounds together

  // The longest blackout that is wanted: rounds go on until it is met, or for `wait` in vain.
  std::optional<Milliseconds> blackout;
  std::chrono::nanoseconds wait{std::chrono::seconds(30)};

  // How long a stop takes beside sending the last pages.
  Milliseconds stop{200};
};

struct Round {
  std::uint64_t sent = 0;  // bytes of this round
  std::uint64_t left = 0;  // at its end: bytes written since they were sent
  std::chrono::nanoseconds time{0};
  std::chrono::nanoseconds waited{0};  // of it, so that programs keep their processors
  bool can_be_faster = false;          // it would have been, had it waited less
};

class Planner {
 public:
  enum class Next {
    kRound,
    kFasterRound,  // it shall wait less: this one was in vain
    kFullRound,    // it shall not wait at all, so that it tells how fast a stop sends
    kStop,
    kGiveUp,
  };

  explicit Planner(const PlannerSettings& settings) : settings_(settings) {}

  Next after(const Round& round);

  // After the last round: bytes a second, and the blackout of a stop at this moment.
  double rate() const { return rate_; }
  double dirty_rate() const { return dirty_rate_; }
  PlannerSettings::Milliseconds blackout() const { return blackout_; }
  unsigned rounds() const { return rounds_; }

 private:
  const PlannerSettings settings_;
  unsigned rounds_ = 0, in_vain_ = 0;
  std::uint64_t least_ = 0;
  double rate_ = 0, dirty_rate_ = 0;
  PlannerSettings::Milliseconds blackout_{0}, best_{0};
  std::chrono::nanoseconds time_{0}, best_at_{0};
};

}  // namespace ferry::precopy
