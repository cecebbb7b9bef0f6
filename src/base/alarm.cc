#include "base/alarm.h"

#include <utility>

namespace ferry {

Alarm::Alarm(std::chrono::milliseconds time, std::function<void()> ring)
    : thread_([this, deadline = std::chrono::steady_clock::now() + time, ring = std::move(ring)] {
        {
          std::unique_lock lock(mutex_);
          if (changed_.wait_until(lock, deadline, [this] { return off_; })) return;
        }
        ring();
      }) {}

Alarm::~Alarm() {
  {
    std::lock_guard lock(mutex_);
    off_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

}  // namespace ferry
