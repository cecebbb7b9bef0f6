// The largest gaps between two completions, as this process sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stream_check {

struct Gap {
  int64_t length_ns = 0;
  int64_t begin_realtime_ns = 0;  // wall-clock time of the completion before the gap
};

class Gaps {
 public:
  static constexpr size_t kKept = 32;

  // One or several completions were seen at this time. A gap that a clock step makes negative is
  // counted as a step and left out; a step ahead cannot be told from a real gap.
  void completion(int64_t monotonic_ns, int64_t realtime_ns);
  // What comes next is not traffic any more.
  void stop() { stopped_ = true; }

  int64_t largest_ns() const { return largest_ns_; }
  uint64_t clock_steps() const { return clock_steps_; }
  // At most kKept, largest first.
  std::vector<Gap> largest() const;

 private:
  bool stopped_ = false;
  bool started_ = false;
  int64_t last_ns_ = 0;
  int64_t largest_ns_ = 0;
  uint64_t clock_steps_ = 0;
  std::vector<Gap> heap_;  // smallest on top
};

}  // namespace stream_check
