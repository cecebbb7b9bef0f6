#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace ferry {

// Calls `ring` once, in a thread of its own, when a time is over, unless the alarm is destroyed
// before. `ring` throws nothing.
class Alarm {
 public:
  Alarm(std::chrono::milliseconds time, std::function<void()> ring);
  // Waits for a `ring` that has begun.
  ~Alarm();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool off_ = false;
  std::thread thread_;
};

}  // namespace ferry
