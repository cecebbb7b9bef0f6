#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "host/checkpoint/course/lead_machine.h"
#include "host/checkpoint/step_bytes.h"
#include "host/peers/conversation.h"
#include "store/content_key.h"

namespace ferry::host {

// What is told to hosts, and what they answer. All throw Failure: then it is given up.
template <typename Step, typename Reply>
class Leader {
 public:
  virtual ~Leader() = default;

  virtual void begins(CourseStep step) = 0;
  virtual Step told(CourseStep step, std::size_t host) = 0;
  virtual void answered(CourseStep step, std::size_t host, const Reply& reply) = 0;
  virtual void taken(CourseStep step) = 0;  // by all hosts
  virtual void decide() = 0;
  virtual void need_wanted() = 0;  // called again and again
};

template <typename Step, typename Reply>
struct LedHost {
  Conversation<Step, Reply>& steps;
  TellBytes tell;  // is told how far its step is
};

// Leads hosts through a course, all of them in this thread: a host costs a message and its answer for each step.
template <typename Step, typename Reply>
class Lead {
 public:
  Lead(const Course& course, std::vector<LedHost<Step, Reply>> hosts, Leader<Step, Reply>& leader)
      : machine_(course, hosts.size()), hosts_(std::move(hosts)), leader_(leader) {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      hosts_[i].steps.on_news([this, i] { has_news(i); });
    }
  }
  ~Lead() {
    for (auto& host : hosts_) host.steps.on_news({});
  }
  Lead(const Lead&) = delete;

  // Returns when all hosts have taken all steps. Throws the first failure, of a host or of the leader, when none has a
  // step under way.
  void run() {
    while (act()) continue;
    if (failure_) std::rethrow_exception(failure_);
    if (failed_) throw hosts_[*failed_].steps.why_ended();
  }

  CourseStep step() const { return machine_.step(); }
  bool is_decided() const { return machine_.is_decided(); }

 private:
  static constexpr std::chrono::milliseconds kLook{20};  // whether it is still wanted

  // False: it is over.
  bool act() {
    if (has_told_ && machine_.is_taken()) {
      has_told_ = false;
      try_to([this] { leader_.taken(machine_.step()); });
    }
    switch (machine_.next()) {
      case LeadMachine::Action::kTell:
        has_told_ = true;
        try_to([this] { tell(); });
        return true;
      case LeadMachine::Action::kDecide:
        machine_.decided(try_to([this] { leader_.decide(); }));
        return true;
      case LeadMachine::Action::kGiveUp:
        for (auto& host : hosts_) host.steps.cancel();
        return true;
      case LeadMachine::Action::kNone:
        for (const std::size_t i : await_news()) hear(i);
        if (!failure_ && (!failed_ || is_decided())) try_to([this] { leader_.need_wanted(); });
        return true;
      default: return false;
    }
  }

  void tell() {
    leader_.begins(machine_.step());
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      if (!machine_.awaits(i)) continue;
      Step step = leader_.told(machine_.step(), i);
      hosts_[i].steps.send(step);
      store::wipe(step.mutable_content_key());
      has_news(i);  // it may have ended before
    }
  }

  // One reply at a time, so that no host keeps others waiting by what it tells.
  void hear(std::size_t i) {
    if (!machine_.awaits(i)) return;
    auto& [steps, tell] = hosts_[i];
    const auto reply = steps.next();
    if (!reply) {
      if (!steps.has_ended()) return;
      if (!failed_) failed_ = i;
      machine_.failed(i);
    } else if (reply->has_progress()) {
      if (tell) tell({reply->progress().done(), reply->progress().total()});
      has_news(i);  // another one may have come since
    } else {
      try_to([&] { leader_.answered(machine_.step(), i, *reply); });
      machine_.answered(i);
    }
  }

  template <typename Call>
  bool try_to(Call call) {
    try {
      call();
      return true;
    } catch (const std::exception&) {
      if (!failure_ && !failed_) failure_ = std::current_exception();
      machine_.give_up();
      return false;
    }
  }

  // From any thread.
  void has_news(std::size_t host) {
    std::lock_guard lock(mutex_);
    news_.push_back(host);
    changed_.notify_all();
  }
  // The hosts that have some.
  std::vector<std::size_t> await_news() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLook, [this] { return !news_.empty(); });
    return std::exchange(news_, {});
  }

  LeadMachine machine_;
  const std::vector<LedHost<Step, Reply>> hosts_;
  Leader<Step, Reply>& leader_;
  bool has_told_ = false;
  std::exception_ptr failure_;         // of the leader
  std::optional<std::size_t> failed_;  // a host, before that
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> news_;  // with the mutex: hosts
};

}  // namespace ferry::host
