// The two clocks of stream_check.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>

namespace stream_check {

inline int64_t clock_ns(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec;
}

// CLOCK_MONOTONIC. In a process that is restored on another host it may step either way; so it is
// used for gaps (which the process that did not move reports rightly) and with RunningTime.
inline int64_t monotonic_ns() {
  return clock_ns(CLOCK_MONOTONIC);
}
// CLOCK_REALTIME, to put events of several processes on one axis.
inline int64_t realtime_ns() {
  return clock_ns(CLOCK_REALTIME);
}

// Time that passed while this process ran: steps back count as 0, steps ahead as 1 s at most.
class RunningTime {
 public:
  void tick(int64_t now_ns) {
    if (last_ns_ != 0) elapsed_ns_ += std::clamp<int64_t>(now_ns - last_ns_, 0, 1'000'000'000);
    last_ns_ = now_ns;
  }
  int64_t elapsed_ns() const { return elapsed_ns_; }
  double seconds() const { return static_cast<double>(elapsed_ns_) / 1e9; }

 private:
  int64_t last_ns_ = 0;
  int64_t elapsed_ns_ = 0;
};

}  // namespace stream_check
