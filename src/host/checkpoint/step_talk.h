#pragma once

#include <chrono>
#include <mutex>

#include "ferry.pb.h"
#include "host/checkpoint/step_bytes.h"
#include "host/peers/peer.h"

// How the progress of a step goes over the stream between two hosts' ferryds: as replies before that of the step.
namespace ferry::host {

// Has the other host take the step, and passes on how far it is. `tell`: null: nobody asks.
template <typename Step, typename Reply>
Reply ask(Conversation<Step, Reply>& steps, const Step& step, const TellBytes& tell) {
  steps.send(step);
  for (;;) {
    Reply reply = steps.receive();
    if (!reply.has_progress()) return reply;
    if (tell) tell({reply.progress().done(), reply.progress().total()});
  }
}

// Writes the replies to the steps of another host's ferryd.
template <typename Reply, typename Stream>
class Replies {
 public:
  explicit Replies(Stream& stream) : stream_(stream) {}

  // False: nobody reads any more.
  bool write(const Reply& reply) {
    std::lock_guard lock(mutex_);
    return stream_.Write(reply);
  }
  // From any thread.
  void tell(const StepBytes& bytes) {
    std::lock_guard lock(mutex_);
    if (!seldom_.is_due(std::chrono::steady_clock::now(), bytes.done == bytes.total)) return;
    Reply reply;
    reply.mutable_progress()->set_done(bytes.done);
    reply.mutable_progress()->set_total(bytes.total);
    stream_.Write(reply);
  }

 private:
  Stream& stream_;
  std::mutex mutex_;
  Seldom seldom_;
};

}  // namespace ferry::host
