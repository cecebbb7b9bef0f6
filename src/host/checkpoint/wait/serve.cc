#include "host/checkpoint/wait/serve.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "ferry.grpc.pb.h"

namespace ferry::host {
namespace {

using WaitStream = grpc::ServerReaderWriter<v1::WaitEvent, v1::WaitStep>;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{100};
// After the caller has ended, for a host that does not answer.
constexpr std::chrono::minutes kEndLimit{10};

// What the caller says, and whether it is there.
class Waiter {
 public:
  explicit Waiter(WaitStream& stream) : thread_([this, &stream] { listen(stream); }) {}
  // When the caller knows all: it ends the call.
  ~Waiter() { thread_.join(); }
  Waiter(const Waiter&) = delete;

  // Waits for a moment, less if there is news. Gives how many signals have come since the last call.
  int signals() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLook, [this] { return signals_ > 0; });
    return std::exchange(signals_, 0);
  }
  bool is_gone() const {
    std::lock_guard lock(mutex_);
    return is_gone_;
  }
  // It has sent no signal, and is there.
  bool awaits_the_restart() const {
    std::lock_guard lock(mutex_);
    return !is_gone_ && signals_ == 0;
  }

 private:
  void listen(WaitStream& stream) {
    for (v1::WaitStep step; stream.Read(&step);) {
      std::lock_guard lock(mutex_);
      if (step.has_signal()) ++signals_;
      changed_.notify_all();
    }
    std::lock_guard lock(mutex_);
    is_gone_ = true;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int signals_ = 0;
  bool is_gone_ = false;
  std::thread thread_;
};

// Returns when all have ended, or this ferryd ends.
void await_end(const std::atomic<bool>& stopping, Waiter& caller, Wait& wait, WaitStream& stream) {
  std::optional<Clock::time_point> gone;
  for (;;) {
    if (caller.is_gone() && !gone) {
      // At the end of a ferryd all calls end: that does not mean anything.
      if (stopping) return;
      gone = Clock::now();
      wait.end_at_once();
      log::info("the command that waited for restarted programs has ended: so do they");
    }
    wait.look([&](const v1::WaitEvent& event) {
      stream.Write(event);
      if (gone && event.has_notice()) log::warn("{}", event.notice());
    });
    if (wait.is_over() || stopping) return;
    if (gone && Clock::now() - *gone > kEndLimit) {
      return log::warn("hosts that do not answer may still run programs that were to end");
    }
    for (int signals = caller.signals(); signals > 0; --signals) wait.end();
  }
}

}  // namespace

void serve_wait(const WaitSteps& steps, grpc::ServerContext& context, WaitStream& stream) {
  v1::WaitStep step;
  if (!stream.Read(&step)) throw Failure("malformed request: a step is missing");
  Waiter caller(stream);
  try {
    const auto programs =
        step.has_restart()
            ? steps.restart(step.restart(), [&caller] { return caller.awaits_the_restart(); })
            : step.restarted();
    const auto wait = steps.begin(programs);
    v1::WaitEvent event;
    *event.mutable_restarted() = programs;
    stream.Write(event);
    await_end(steps.stopping, caller, *wait, stream);
    if (steps.stopping) context.TryCancel();  // the caller asks the next ferryd
  } catch (const std::exception& failure) {
    v1::WaitEvent event;
    event.set_failed(failure.what());
    stream.Write(event);
  }
}

}  // namespace ferry::host
