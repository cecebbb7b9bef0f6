#include "gaps.h"

#include <algorithm>

namespace stream_check {
namespace {

bool longer(const Gap& a, const Gap& b) {
  return a.length_ns > b.length_ns;
}

}  // namespace

void Gaps::completion(int64_t monotonic_ns, int64_t realtime_ns) {
  if (stopped_) return;
  const int64_t length = monotonic_ns - last_ns_;
  last_ns_ = monotonic_ns;
  if (!started_) {
    started_ = true;
    return;
  }
  if (length < 0) {
    ++clock_steps_;
    return;
  }
  largest_ns_ = std::max(largest_ns_, length);
  if (heap_.size() == kKept && length <= heap_.front().length_ns) return;
  if (heap_.size() == kKept) {
    std::pop_heap(heap_.begin(), heap_.end(), longer);
    heap_.pop_back();
  }
  heap_.push_back({length, realtime_ns - length});
  std::push_heap(heap_.begin(), heap_.end(), longer);
}

std::vector<Gap> Gaps::largest() const {
  std::vector<Gap> sorted = heap_;
  std::sort(sorted.begin(), sorted.end(), longer);
  return sorted;
}

}  // namespace stream_check
