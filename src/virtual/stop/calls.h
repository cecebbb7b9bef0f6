#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ferry::virt {

// The program's calls that make, change or ask objects of the device behind. While the device is
// stopped they wait.
class Calls {
 public:
  // A call by a thread of the program: lasts as long as the object, and begins when no stop is going on.
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

  // A call by a thread that must not wait (the agent's, which ends stops): lasts as long as the object.
  class Glance {
   public:
    explicit Glance(Calls& calls) : calls_(calls) {
      std::lock_guard lock(calls_.mutex_);
      is_in_ = !calls_.stopped_;
      if (is_in_) ++calls_.under_way_;
    }
    ~Glance() {
      std::lock_guard lock(calls_.mutex_);
      if (is_in_ && --calls_.under_way_ == 0) calls_.changed_.notify_all();
    }
    Glance(const Glance&) = delete;
    Glance& operator=(const Glance&) = delete;
    // False: the device is stopped.
    bool is_in() const { return is_in_; }

   private:
    Calls& calls_;
    bool is_in_ = false;
  };

  // Lets no call begin, and waits for those that are under way. False: a call was still under way at
  // `deadline`, and calls may begin again.
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

  // Between before_fork() and after_fork(), in parent and child, no call and no stop begins or ends.
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }
  // Whether calls wait. The caller knows that no other thread begins or ends a stop: a child after fork() has none.
  bool are_stopped() const { return stopped_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  int under_way_ = 0;
};

}  // namespace ferry::virt
