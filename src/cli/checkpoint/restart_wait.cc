#include "cli/checkpoint/restart_wait.h"

#include <fmt/core.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "cli/checkpoint/checkpoint.h"
#include "cli/ferryd/local_ferryd.h"
#include "ferry.grpc.pb.h"
#include "store/content_key.h"

namespace ferry::cli {
namespace {

using WaitStream = grpc::ClientReaderWriter<v1::WaitStep, v1::WaitEvent>;

constexpr std::chrono::milliseconds kAgain{500};  // until a ferryd is looked for again
constexpr timespec kLook{0, 100'000'000};
constexpr int kMostSignals = 2;  // that ferryd is told; the next one has its usual effect

sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Tells ferryd of the signals that are to end this process. Threads inherit the signal mask: so this is made first.
class EndingSignals {
 public:
  EndingSignals() {
    const auto signals = ending_signals();
    ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
    thread_ = std::jthread([this](const std::stop_token& stop) { listen(stop); });
  }
  ~EndingSignals() {
    thread_ = {};
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  EndingSignals(const EndingSignals&) = delete;

  // From now on, and also of those that have come before. Null: nobody is told.
  void tell(WaitStream* stream) {
    std::lock_guard lock(mutex_);
    stream_ = stream;
    for (int i = 0; stream_ != nullptr && i < come_; ++i) write();
  }

 private:
  void listen(const std::stop_token& stop) {
    const auto signals = ending_signals();
    while (!stop.stop_requested() && come_ < kMostSignals) {
      if (::sigtimedwait(&signals, nullptr, &kLook) < 0) continue;
      std::lock_guard lock(mutex_);
      ++come_;
      if (stream_ != nullptr) write();
    }
    // Of all threads this one takes them.
    if (come_ == kMostSignals) ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  void write() {
    v1::WaitStep step;
    step.set_signal(SIGTERM);
    stream_->Write(step);
  }

  sigset_t before_{};
  std::mutex mutex_;
  WaitStream* stream_ = nullptr;
  int come_ = 0;
  std::jthread thread_;
};

// What ferryd has told.
class Waiting {
 public:
  // The first step for a ferryd: the restart, or what is left to be waited for.
  v1::WaitStep begin(const v1::RestartRequest& request) const {
    v1::WaitStep step;
    if (programs_) {
      *step.mutable_restarted() = *programs_;
    } else {
      *step.mutable_restart() = request;
    }
    return step;
  }

  bool has_begun() const { return programs_.has_value(); }
  bool is_over() const { return !failure_.empty() || (programs_ && programs_->ids().empty()); }
  // Throws Failure.
  int status() const {
    if (!failure_.empty()) throw Failure(failure_);
    return status_;
  }

  void take(const v1::WaitEvent& event) {
    if (event.has_failed()) {
      failure_ = one_line(event.failed());
    } else if (event.has_notice()) {
      fmt::print(stderr, "ferry: {}\n", one_line(event.notice()));
    } else if (event.has_ended()) {
      tell(event.ended());
      forget(event.ended().id());
    } else if (!programs_) {
      programs_ = event.restarted();
      print_restart(programs_->report());
      std::fflush(stdout);
    }
  }

 private:
  void tell(const v1::WaitEvent::Ended& program) {
    const std::string name = fmt::format("{} on {}", program.program(), program.host());
    if (!program.moved_to().empty()) {
      fmt::print(stderr, "ferry: {} has moved to {}, and is not waited for any more\n", name,
                 program.moved_to());
    } else if (!program.has_status()) {
      fmt::print(stderr, "ferry: {} has ended; nobody knows with which exit status\n", name);
    } else if (program.status() != 0) {
      fmt::print(stderr, "ferry: {} has ended with exit status {}\n", name, program.status());
      if (status_ == 0) status_ = program.status();
    }
  }

  void forget(std::uint64_t id) {
    if (!programs_) return;
    v1::RestartReport& report = *programs_->mutable_report();
    for (int i = 0; i < programs_->ids_size(); ++i) {
      if (programs_->ids(i) != id) continue;
      programs_->mutable_ids()->erase(programs_->ids().begin() + i);
      programs_->mutable_ferryds()->DeleteSubrange(i, 1);
      report.mutable_programs()->DeleteSubrange(i, 1);
      report.mutable_hosts()->DeleteSubrange(i, 1);
      return;
    }
  }

  std::optional<v1::RestartedPrograms> programs_;  // those that have not ended
  std::string failure_;
  int status_ = 0;
};

// Hears what the ferryd of this host tells, until all is told or it ends.
grpc::Status hear(const v1::RestartRequest& request, EndingSignals& signals, Waiting* waiting) {
  LocalFerryd ferryd;
  const std::unique_ptr<WaitStream> stream = ferryd->Wait(ferryd.context());
  stream->Write(waiting->begin(request));
  signals.tell(stream.get());
  for (v1::WaitEvent event; !waiting->is_over() && stream->Read(&event);) waiting->take(event);
  signals.tell(nullptr);
  stream->WritesDone();
  return stream->Finish();
}

}  // namespace

int restart_and_wait(v1::RestartRequest request, const std::string& key) {
  complete(&request, key);
  EndingSignals signals;
  Waiting waiting;
  bool is_told = false;
  for (;;) {
    try {
      const auto status = hear(request, signals, &waiting);
      if (waiting.is_over()) return waiting.status();
      if (!waiting.has_begun()) {
        throw_unless_ok(status);
        throw Failure("ferryd does not say whether the programs go on; see: ferry ps");
      }
    } catch (const Failure&) {
      if (!waiting.has_begun() || waiting.is_over()) throw;
      if (!std::exchange(is_told, true)) {
        fmt::print(stderr, "ferry: the programs go on, and this waits for a ferryd on this host\n");
      }
    }
    store::wipe(request.mutable_content_key());
    std::this_thread::sleep_for(kAgain);
  }
}

}  // namespace ferry::cli
