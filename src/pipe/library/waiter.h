#pragma once

#include <cerrno>
#include <chrono>
#include <memory>

#include "base/unique_fd.h"
#include "pipe/library/program.h"
#include "pipe/library/socket.h"

namespace ferry::pd {

// When a call gives up.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(int milliseconds)
      : for_ever_(milliseconds < 0),
        end_(Clock::now() + std::chrono::milliseconds(for_ever_ ? 0 : milliseconds)) {}
  bool is_over() const { return !for_ever_ && Clock::now() >= end_; }
  // As poll(2) has it; rounded up.
  int left() const;

 private:
  const bool for_ever_;
  const Clock::time_point end_;
};

// What a thread waits by, in a call with a timeout.
class Waiter : public Watch {
 public:
  // This thread's. Null: there are no descriptors; errno says so.
  static std::shared_ptr<Waiter> of_thread(Program& program);

  explicit Waiter(Program& program);
  void wake() override;
  void has_descriptor(int) override { wake(); }

  // While this exists, wake() is called when something of the socket changes.
  class Registration {
   public:
    Registration(std::shared_ptr<Waiter> waiter, Socket& socket, Program& program);
    ~Registration();

   private:
    std::shared_ptr<Waiter> waiter_;
    Socket& socket_;
    Program& program_;
  };

  // Until wake(), a notice, an event of `descriptor` (-1: none), or the deadline. 0 or errno.
  int sleep(int descriptor, short events, const Deadline& deadline);

 private:
  bool is_complete() const { return epoll_ && woken_; }

  const std::uint64_t program_;
  UniqueFd epoll_, woken_;
};

// Looks for completions without a system call for as long as SO_BUSY_POLL says, and lets other threads
// go first. Where these take long it is better to sleep: who is woken goes before them.
class Patience {
 public:
  explicit Patience(int microseconds);
  // False: it is over.
  bool wait();

 private:
  Deadline::Clock::time_point now_;
  const Deadline::Clock::time_point end_;
};

// Repeats `attempt`, which looks for completions, until it does not fail with EAGAIN, or the time is
// over. `events`: those of the kernel's descriptor, where the socket has one.
template <typename Attempt>
auto repeat(Program& program, Socket& socket, int timeout, short events, Attempt attempt)
    -> decltype(attempt()) {
  auto result = attempt();
  if (result >= 0 || errno != EAGAIN || timeout == 0) return result;
  const Deadline deadline(timeout);
  program.ring(true);
  for (Patience patience(socket.patience); patience.wait();) {
    result = attempt();
    if (result >= 0 || errno != EAGAIN) return result;
    if (deadline.is_over()) return result;
  }
  const auto waiter = Waiter::of_thread(program);
  if (!waiter) return -1;
  const Waiter::Registration registration(waiter, socket, program);
  for (;;) {
    program.want_notice();
    result = attempt();
    if (result >= 0 || errno != EAGAIN) return result;
    if (deadline.is_over()) {
      errno = EAGAIN;
      return result;
    }
    if (program.is_over()) {
      errno = ENODEV;
      return result;
    }
    program.ring(true);
    if (const int error = waiter->sleep(socket.descriptor(), events, deadline)) {
      errno = error;
      return -1;
    }
  }
}

}  // namespace ferry::pd
