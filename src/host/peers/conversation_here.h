#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "host/peers/conversation.h"
#include "host/peers/served.h"

namespace ferry::host {

// A conversation whose steps this ferryd carries out, in a thread.
template <typename Step, typename Reply>
class ConversationHere final : public Conversation<Step, Reply>, private Served<Step, Reply> {
 public:
  // Carries out the steps; what it throws ends the conversation.
  using Serve = std::function<void(Served<Step, Reply>& steps)>;

  explicit ConversationHere(Serve serve) : serve_(std::move(serve)), thread_([this] { run(); }) {}
  // Returns when the last step has ended.
  ~ConversationHere() override {
    cancel();
    thread_.join();
  }

  void send(const Step& step) override {
    std::lock_guard lock(mutex_);
    steps_.push_back(step);
    changed_.notify_all();
  }
  void cancel() override {
    std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    changed_.notify_all();
  }
  Failure why_ended() override {
    std::lock_guard lock(mutex_);
    return Failure(failure_.empty() ? "it is given up" : failure_);
  }

 private:
  void run() {
    std::string failure;
    try {
      serve_(*this);
    } catch (const std::exception& thrown) {
      failure = thrown.what();
    }
    {
      std::lock_guard lock(mutex_);
      failure_ = std::move(failure);
    }
    this->ended();
  }
  bool read(Step* step) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_cancelled_ || !steps_.empty(); });
    if (steps_.empty()) return false;  // what was sent before the end counts
    *step = std::move(steps_.front());
    steps_.pop_front();
    return true;
  }
  bool write(const Reply& reply) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_cancelled_ || has_room_; });
    if (is_cancelled_) return false;
    has_room_ = false;
    lock.unlock();
    this->arrived(reply);
    return true;
  }
  bool is_over() const override {
    std::lock_guard lock(mutex_);
    return is_cancelled_;
  }
  bool is_here() const override { return true; }
  void want_next() override {
    std::lock_guard lock(mutex_);
    has_room_ = true;
    changed_.notify_all();
  }

  const Serve serve_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Step> steps_;
  bool is_cancelled_ = false, has_room_ = true;
  std::string failure_;
  std::thread thread_;
};

}  // namespace ferry::host
