#include "host/ferryd/detach_stream.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/failure.h"
#include "base/log.h"
#include "ferry.grpc.pb.h"
#include "host/detach/detachments.h"
#include "host/ferryd/daemon.h"

namespace ferry::host {
namespace {

// Ends the call, if it lives for as long as `limit`.
class CallLimit {
 public:
  CallLimit(grpc::ServerContext& context, std::chrono::milliseconds limit)
      : thread_([this, &context, limit] {
          std::unique_lock lock(mutex_);
          if (!changed_.wait_for(lock, limit, [this] { return is_over_; })) context.TryCancel();
        }) {}
  ~CallLimit() {
    {
      std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  CallLimit(const CallLimit&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

void report_to(const Detachment& detachment, v1::DetachReply::Report* report) {
  report->set_device(detachment.device_names());
  for (const auto& program : detachment.programs()) {
    auto* added = report->add_programs();
    added->set_pid(program->root());
    added->set_name(program->name());
    added->set_stood_still_ms(program->stood_still_ms().value_or(0));
  }
}

}  // namespace

void serve_detach(Daemon& daemon, uid_t user, grpc::ServerContext& context,
                  grpc::ServerReaderWriter<v1::DetachReply, v1::DetachStep>& stream) {
  v1::DetachStep step;
  if (!stream.Read(&step)) throw Failure("malformed request: a step is missing");
  const auto detachment = daemon.detach(user, step.device());
  detachment->leave();
  v1::DetachReply reply;
  report_to(*detachment, reply.mutable_left());
  {
    const CallLimit limit(context, std::chrono::milliseconds(step.limit_ms()));
    if (stream.Write(reply)) stream.Read(&step);
  }
  if (context.IsCancelled()) {
    log::warn("programs come back to {} unasked: who had them leave it has ended, or took too long",
              detachment->device_names());
  }
  detachment->enter([&](const std::string& why) {
    v1::DetachReply waiting;
    waiting.set_waiting(why);
    stream.Write(waiting);
  });
  report_to(*detachment, reply.mutable_back());
  stream.Write(reply);
}

}  // namespace ferry::host
