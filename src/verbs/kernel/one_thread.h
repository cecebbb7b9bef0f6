#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

namespace ferry::verbs {

// A thread of Ferry's that does what other threads ask it to do, one thing after the other.
class OneThread {
 public:
  // Returns when the thread has done `task`, which throws nothing. 0 or errno: there is no thread.
  int run(const std::function<void()>& task);

 private:
  static void* thread_main(void* self);
  void serve();

  std::mutex turn_;  // held by the thread that asks
  bool is_started_ = false;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  const std::function<void()>* task_ = nullptr;  // what is to be done
};

}  // namespace ferry::verbs
