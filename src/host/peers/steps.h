#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/failure.h"

// What serves the steps of a Conversation (conversation.h).
namespace ferry::host {

// Gives the part up as soon as the other side has ended the conversation, also in the middle of a step.
template <typename Part>
class Watch {
 public:
  // `has_ended`: whether it has; called by a thread of its own.
  Watch(std::function<bool()> has_ended, Part& part)
      : thread_([this, has_ended = std::move(has_ended), &part] {
          std::unique_lock lock(mutex_);
          while (!changed_.wait_for(lock, kLook, [this] { return is_over_; })) {
            if (has_ended()) part.give_up();
          }
        }) {}
  ~Watch() {
    {
      std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watch(const Watch&) = delete;

 private:
  static constexpr std::chrono::milliseconds kLook{100};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

// Each step comes once, behind the one that it needs.
class StepOrder {
 public:
  // `before`: the step that it needs; -1: none. Throws Failure.
  void need(int step, int before) {
    if (before >= 0 && !done_.contains(before))
      throw Failure("malformed request: a step is missing");
    if (!done_.insert(step).second) throw Failure("malformed request: a step comes twice");
  }

 private:
  std::set<int> done_;
};

}  // namespace ferry::host
