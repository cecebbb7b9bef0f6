#include "cli/live/interrupts.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "base/failure.h"
#include "cli/ferryd/local_ferryd.h"
#include "ferry.grpc.pb.h"

namespace ferry::cli {

void cancel(const v1::CancelRequest& request) {
  LocalFerryd ferryd;
  v1::CancelReply reply;
  throw_unless_ok(ferryd->Cancel(ferryd.context(), request, &reply));
}

Interrupts::Interrupts(std::string what, Add add) : what_(std::move(what)), add_(std::move(add)) {
  sigemptyset(&signal_);
  sigaddset(&signal_, SIGINT);
  struct sigaction action {};
  if (::sigaction(SIGINT, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) return;
  // Threads inherit the mask: those of gRPC, which are made later, do not take the signal.
  ::pthread_sigmask(SIG_BLOCK, &signal_, nullptr);
  thread_ = std::thread([this] { wait(); });
}

Interrupts::~Interrupts() {
  is_over_ = true;
  if (!thread_.joinable()) return;
  thread_.join();
  ::pthread_sigmask(SIG_UNBLOCK, &signal_, nullptr);
}

void Interrupts::wait() {
  constexpr timespec kGlance{0, 50'000'000};
  bool is_given_up = false;
  while (!is_over_) {
    if (::sigtimedwait(&signal_, nullptr, &kGlance) == SIGINT) {
      if (are_wanted_) {
        fmt::print(stderr, "ferry: not waiting any longer; see: ferry ps\n");
        std::_Exit(128 + SIGINT);
      }
      are_wanted_ = true;
      if (id_ == 0) fmt::print(stderr, "ferry: giving the {} up as soon as it begins\n", what_);
    }
    const std::uint64_t id = id_;
    if (!are_wanted_ || is_given_up || id == 0) continue;
    is_given_up = true;
    give_up(id);
  }
}

void Interrupts::give_up(std::uint64_t id) const {
  try {
    v1::CancelRequest request;
    add_(id, &request);
    cancel(request);
  } catch (const Failure& failure) {
    fmt::print(stderr, "ferry: {}\n", failure.what());
  }
}

}  // namespace ferry::cli
