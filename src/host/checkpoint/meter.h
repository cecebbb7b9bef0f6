#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <utility>

#include "host/checkpoint/step_bytes.h"

namespace ferry::host {

// Sums what the hosts have done of a step, and says how fast that goes. No clock.
class Meter {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Reading {
    StepBytes bytes;
    double rate = 0;          // bytes a second, in the last seconds
    double left_seconds = 0;  // 0: nobody knows
  };

  // Another step begins: nothing of it is done.
  void begin();
  void set(std::size_t host, const StepBytes& bytes, Time now);
  Reading read() const;
  // So many hosts have told, and have done all.
  bool are_done(std::size_t hosts) const;

 private:
  StepBytes sum() const;

  std::map<std::size_t, StepBytes> hosts_;
  std::deque<std::pair<Time, std::uint64_t>> past_;  // what was done when, of the last seconds
};

}  // namespace ferry::host
