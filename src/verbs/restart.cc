#include "verbs/restart.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "agent/clock.h"
#include "verbs/entry.h"
#include "verbs/faults.h"
#include "verbs/stock.h"

namespace ferry::verbs {

agent::ControlBlock control_block;

namespace {

std::uint32_t freezes() {
  return std::atomic_ref<std::uint32_t>(control_block.freezes).load(std::memory_order_acquire);
}

constexpr std::int64_t kSecond = 1000000000;
constexpr std::int64_t kForever = -1;

using agent::now_ns;

// The time that a call may still take, in nanoseconds; negative: for ever. It is never more than
// the program asked for, since the clock may have jumped in the restore.
class Remaining {
 public:
  explicit Remaining(std::int64_t total)
      : total_(total), deadline_(total > 0 ? now_ns() + total : 0) {}
  std::int64_t get() const {
    return total_ > 0 ? std::clamp<std::int64_t>(deadline_ - now_ns(), 0, total_) : total_;
  }

 private:
  std::int64_t total_, deadline_;
};

bool valid(const timespec& t) {
  return t.tv_sec >= 0 && t.tv_nsec >= 0 && t.tv_nsec < kSecond;
}
// Some 146 years are as good as more.
std::int64_t to_ns(const timespec& t) {
  return std::min<std::int64_t>(t.tv_sec, INT64_MAX / kSecond / 2) * kSecond + t.tv_nsec;
}
timespec to_timespec(std::int64_t ns) {
  return {ns / kSecond, ns % kSecond};
}
std::int64_t ms_to_ns(int ms) {
  return ms < 0 ? kForever : ms * std::int64_t{1000000};
}
int to_ms(std::int64_t ns) {
  return ns < 0 ? -1 : static_cast<int>((ns + 999999) / 1000000);
}

// Calls `first`, which has the arguments of the program. After a restore, calls `again` with what
// is left of the program's time.
template <typename First, typename Again>
auto with_retries(std::int64_t time, First first, Again again) {
  Interruption interruption;
  const Remaining remaining(time);
  auto result = first();
  while (result < 0 && interruption.was_restore()) result = again(remaining.get());
  return result;
}

// For calls that take a timespec, or null for ever.
template <typename Call>
int with_timespec(const timespec* timeout, Call call) {
  if (timeout && !valid(*timeout)) return call(timeout);
  return with_retries(
      timeout ? to_ns(*timeout) : kForever, [&] { return call(timeout); },
      [&](std::int64_t left) {
        const timespec t = to_timespec(left);
        return call(timeout ? &t : nullptr);
      });
}

// Keeps the sets of a select(), which changes them also when it fails.
class SavedSets {
 public:
  SavedSets(int count, fd_set* a, fd_set* b, fd_set* c) : sets_{a, b, c} {
    bytes_ = count > 0 ? (static_cast<std::size_t>(std::min(count, FD_SETSIZE)) + 63) / 64 * 8 : 0;
    for (int i = 0; i < 3; ++i) {
      if (sets_[i]) std::memcpy(&saved_[i], sets_[i], bytes_);
    }
  }
  void put_back() {
    for (int i = 0; i < 3; ++i) {
      if (sets_[i]) std::memcpy(sets_[i], &saved_[i], bytes_);
    }
  }

 private:
  fd_set* sets_[3];
  fd_set saved_[3];
  std::size_t bytes_;
};

// Sleeps for `total`, in nanoseconds, by `call`: nanosleep() or its like, which tells what is left when a handler of
// the program ends it.
int sleep_for(std::int64_t total, timespec* left_out, int (*call)(const timespec*, timespec*)) {
  const Remaining remaining(total);
  Interruption interruption;
  for (std::int64_t left = total;; left = remaining.get()) {
    const timespec request = to_timespec(left);
    timespec kernel_left{};
    const int result = call(&request, &kernel_left);
    if (result == 0) return 0;
    if (interruption.was_restore()) continue;
    if (errno == EINTR && left_out) *left_out = kernel_left;
    return result;
  }
}

}  // namespace

Interruption::Interruption()
    : freezes_(freezes()),
      handlers_(handlers_run_on_this_thread()),
      interrupting_(interrupting_handlers_run_on_this_thread()) {}

bool Interruption::was_restore() {
  if (errno != EINTR || freezes() == freezes_ || handlers_run_on_this_thread() != handlers_)
    return false;
  *this = Interruption();
  return true;
}

bool Interruption::would_restart() const {
  return errno == EINTR && handlers_run_on_this_thread() != handlers_ &&
         interrupting_handlers_run_on_this_thread() == interrupting_;
}

}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT int poll(pollfd* fds, nfds_t count, int timeout) {
  const auto next = FERRY_NEXT(poll);
  return with_retries(
      ms_to_ns(timeout), [&] { return next(fds, count, timeout); },
      [&](std::int64_t left) { return next(fds, count, to_ms(left)); });
}

FERRY_EXPORT int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t size) {
  if (size / sizeof *fds < count) __builtin_trap();
  return poll(fds, count, timeout);
}

FERRY_EXPORT int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  const auto next = FERRY_NEXT(ppoll);
  return with_timespec(timeout, [&](const timespec* t) { return next(fds, count, t, mask); });
}

FERRY_EXPORT int epoll_wait(int epoll, epoll_event* events, int count, int timeout) {
  const auto next = FERRY_NEXT(epoll_wait);
  return with_retries(
      ms_to_ns(timeout), [&] { return next(epoll, events, count, timeout); },
      [&](std::int64_t left) { return next(epoll, events, count, to_ms(left)); });
}

FERRY_EXPORT int epoll_pwait(int epoll, epoll_event* events, int count, int timeout,
                             const sigset_t* mask) {
  const auto next = FERRY_NEXT(epoll_pwait);
  return with_retries(
      ms_to_ns(timeout), [&] { return next(epoll, events, count, timeout, mask); },
      [&](std::int64_t left) { return next(epoll, events, count, to_ms(left), mask); });
}

FERRY_EXPORT int pselect(int count, fd_set* reads, fd_set* writes, fd_set* others,
                         const timespec* timeout, const sigset_t* mask) {
  const auto next = FERRY_NEXT(pselect);
  if (count > FD_SETSIZE) return next(count, reads, writes, others, timeout, mask);
  SavedSets sets(count, reads, writes, others);
  return with_timespec(timeout, [&](const timespec* t) {
    sets.put_back();
    return next(count, reads, writes, others, t, mask);
  });
}

FERRY_EXPORT int select(int count, fd_set* reads, fd_set* writes, fd_set* others,
                        timeval* timeout) {
  const auto next = FERRY_NEXT(select);
  if (count > FD_SETSIZE || (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0))) {
    return next(count, reads, writes, others, timeout);
  }
  SavedSets sets(count, reads, writes, others);
  const timespec total = timeout ? timespec{timeout->tv_sec + timeout->tv_usec / 1000000,
                                            timeout->tv_usec % 1000000 * 1000}
                                 : timespec{};
  return with_retries(
      timeout ? to_ns(total) : kForever,
      [&] { return next(count, reads, writes, others, timeout); },
      [&](std::int64_t left) {
        sets.put_back();
        if (timeout) *timeout = {left / kSecond, left % kSecond / 1000};
        return next(count, reads, writes, others, timeout);
      });
}

FERRY_EXPORT int nanosleep(const timespec* request, timespec* left) {
  const auto next = FERRY_NEXT(nanosleep);
  if (!request || !valid(*request)) return next(request, left);
  return sleep_for(to_ns(*request), left,
                   [](const timespec* r, timespec* l) { return FERRY_NEXT(nanosleep)(r, l); });
}

// clock_nanosleep() returns the error instead of setting errno.
FERRY_EXPORT int clock_nanosleep(clockid_t clock, int flags, const timespec* request,
                                 timespec* left) {
  const auto next = FERRY_NEXT(clock_nanosleep);
  if (!request || !valid(*request)) return next(clock, flags, request, left);
  const Remaining remaining(to_ns(*request));
  Interruption interruption;
  timespec wanted = *request;
  for (;;) {
    const int error = next(clock, flags, &wanted, left);
    if (error != EINTR) return error;
    const int saved_errno = errno;
    errno = EINTR;
    const bool again = interruption.was_restore();
    errno = saved_errno;
    if (!again) return error;
    if (!(flags & TIMER_ABSTIME)) wanted = to_timespec(remaining.get());
  }
}

FERRY_EXPORT unsigned sleep(unsigned seconds) {
  timespec left{static_cast<time_t>(seconds), 0};
  const int saved_errno = errno;
  if (nanosleep(&left, &left) == 0) {
    errno = saved_errno;
    return 0;
  }
  return static_cast<unsigned>(left.tv_sec + (left.tv_nsec >= kSecond / 2));
}

FERRY_EXPORT int usleep(useconds_t microseconds) {
  const timespec request = to_timespec(std::int64_t{microseconds} * 1000);
  return nanosleep(&request, nullptr);
}
