#include "rnic/engine/timing/thread_waker.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace ferry::rnic {

void ThreadWaker::kick() {
  // Counts this thread out also when it is cancelled in write().
  struct Kicking {
    explicit Kicking(std::atomic<unsigned>& count) : kicking(count) { kicking.fetch_add(1); }
    ~Kicking() { kicking.fetch_sub(1); }
    std::atomic<unsigned>& kicking;
  } const in_here(kicking_);
  const int event = event_.load();
  if (event < 0) return;
  const std::uint64_t one = 1;
  // write() fails only when the counter is full already, which wakes the thread as well.
  [[maybe_unused]] const ssize_t written = write(event, &one, sizeof one);
}

void ThreadWaker::listen() {
  // Either this call sees that the thread is parked, or the thread sees the request before it
  // parks.
  listen_requests_.fetch_add(1);
  if (parked_.load()) kick();
}

int ThreadWaker::open() {
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) return errno;
  event_.store(event);
  return 0;
}

void ThreadWaker::close() {
  const int event = event_.exchange(-1);
  if (event < 0) return;
  while (kicking_.load() != 0) sched_yield();
  ::close(event);
}

void ThreadWaker::abandon() {
  const int event = event_.exchange(-1);
  if (event >= 0) ::close(event);
}

void ThreadWaker::drain() {
  std::uint64_t count;
  [[maybe_unused]] const ssize_t taken = read(event_.load(), &count, sizeof count);
}

}  // namespace ferry::rnic
