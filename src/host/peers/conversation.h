#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "base/failure.h"

namespace ferry::host {

// Steps that another host's ferryd carries out one after the other, or this one in a thread of its own. It gives up
// what it has begun when this ends before the last step.
template <typename Step, typename Reply>
class Conversation {
 public:
  virtual ~Conversation() = default;

  // Does not wait. From any thread, also while another one receives.
  virtual void send(const Step& step) = 0;
  // Ends it, from any thread.
  virtual void cancel() = 0;
  // Once it has ended: the peer's one line, or that it does not answer. May take some seconds to find out.
  virtual Failure why_ended() = 0;

  // The next reply, if it has come.
  std::optional<Reply> next() {
    std::unique_lock lock(mutex_);
    if (!reply_) return std::nullopt;
    std::optional<Reply> reply = std::exchange(reply_, std::nullopt);
    lock.unlock();
    want_next();
    return reply;
  }
  // No more replies come, after those that next() gives.
  bool has_ended() {
    std::lock_guard lock(mutex_);
    return has_ended_ && !reply_;
  }
  // `news` is called by any thread when next() or has_ended() has something new; it must not wait.
  void on_news(std::function<void()> news) {
    std::lock_guard lock(mutex_);
    news_ = std::move(news);
  }

  // Waits for the next reply. Throws why_ended(); then no more steps follow.
  Reply receive() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reply_ || has_ended_; });
    lock.unlock();
    if (auto reply = next()) return std::move(*reply);
    throw why_ended();
  }
  Reply ask(const Step& step) {
    send(step);
    return receive();
  }

 protected:
  // Of whoever has the other end: a reply has come, and there is room for it; no more will come.
  void arrived(Reply reply) {
    tell([&] { reply_ = std::move(reply); });
  }
  void ended() {
    tell([&] { has_ended_ = true; });
  }
  // There is room for one more reply, as at the beginning.
  virtual void want_next() = 0;

 private:
  template <typename Change>
  void tell(Change change) {
    std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
    if (news_) news_();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Reply> reply_;
  bool has_ended_ = false;
  std::function<void()> news_;
};

}  // namespace ferry::host
