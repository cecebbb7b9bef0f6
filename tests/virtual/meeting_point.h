#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ferry::virt::testing {

// Where calls wait until so many of them are under way at the same time. So a test sees that calls are concurrent,
// on a machine of any speed.
class MeetingPoint {
 public:
  explicit MeetingPoint(int wanted) : wanted_(wanted) {}
  // False: the others have not come.
  bool meet() {
    std::unique_lock lock(mutex_);
    ++under_way_;
    changed_.notify_all();
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return under_way_ >= wanted_; });
  }

 private:
  const int wanted_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int under_way_ = 0;
};

}  // namespace ferry::virt::testing
