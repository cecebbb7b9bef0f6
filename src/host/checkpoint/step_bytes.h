#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace ferry::host {

// How much of a step that copies, stores or reads a host has done. The total may grow until the step has ended.
struct StepBytes {
  std::uint64_t done = 0, total = 0;
};
// From any thread, as often as there is something new.
using TellBytes = std::function<void(const StepBytes& bytes)>;

// Whether what is told so often is worth passing on.
class Seldom {
 public:
  // `is_end`: nothing may follow that is newer.
  bool is_due(std::chrono::steady_clock::time_point now, bool is_end) {
    if (!is_end && now < next_) return false;
    next_ = now + kBetween;
    return true;
  }

 private:
  static constexpr std::chrono::milliseconds kBetween{100};

  std::chrono::steady_clock::time_point next_;
};

}  // namespace ferry::host
