#pragma once

#include <chrono>
#include <mutex>

#include "ferry.pb.h"
#include "host/checkpoint/step_bytes.h"
#include "host/peers/served.h"

// How the progress of a step is told in a conversation: by replies before that of the step.
namespace ferry::host {

// Writes the replies to steps.
template <typename Step, typename Reply>
class Replies {
 public:
  explicit Replies(Served<Step, Reply>& steps) : steps_(steps) {}

  // False: nobody reads any more.
  bool write(const Reply& reply) {
    std::lock_guard lock(mutex_);
    return steps_.write(reply);
  }
  // From any thread.
  void tell(const StepBytes& bytes) {
    std::lock_guard lock(mutex_);
    if (!seldom_.is_due(std::chrono::steady_clock::now(), bytes.done == bytes.total)) return;
    Reply reply;
    reply.mutable_progress()->set_done(bytes.done);
    reply.mutable_progress()->set_total(bytes.total);
    steps_.write(reply);
  }

 private:
  Served<Step, Reply>& steps_;
  std::mutex mutex_;
  Seldom seldom_;
};

}  // namespace ferry::host
