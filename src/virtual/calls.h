#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ferry::virt {

// The program's calls that make, change or ask objects of the device behind. While the device is
// stopped they wait.
class Calls {
 public:
  // One call, while it lives.
  class Call {
   public:
    explicit Call(Calls& calls) : calls_(calls) {
      std::unique_lock lock(calls_.mutex_);
      calls_.changed_.wait(lock, [&] { return !calls_.stopped_; });
      ++calls_.under_way_;
    }
    ~Call() {
      std::lock_guard lock(calls_.mutex_);
      if (--calls_.under_way_ == 0) calls_.changed_.notify_all();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Calls& calls_;
  };

  // Lets no call begin, and waits for those that are under way. False: one is still at `deadline`,
  // and calls go on.
  bool stop(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    stopped_ = true;
    if (changed_.wait_until(lock, deadline, [&] { return under_way_ == 0; })) return true;
    stopped_ = false;
    changed_.notify_all();
    return false;
  }
  void go_on() {
    std::lock_guard lock(mutex_);
    stopped_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  int under_way_ = 0;
};

}  // namespace ferry::virt
