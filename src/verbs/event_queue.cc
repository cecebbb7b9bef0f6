#include "verbs/event_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "verbs/restart.h"

namespace ferry::verbs {

EventQueue::~EventQueue() {
  close();
}

void EventQueue::close() {
  if (read_end_ >= 0) ::close(read_end_);
  if (write_end_ >= 0) ::close(write_end_);
  read_end_ = write_end_ = -1;
}

int EventQueue::open() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
  read_end_ = ends[0];
  write_end_ = ends[1];
  // The ends are two file descriptions: this leaves the application's end blocking.
  if (::fcntl(write_end_, F_SETFL, O_NONBLOCK) != 0) return errno;
  return 0;
}

void EventQueue::push(const Event& event) noexcept {
  std::lock_guard lock(mutex_);
  try {
    events_.push_back(event);
  } catch (...) {
    return;
  }
  if (stale_bytes_ > 0) {
    --stale_bytes_;
    return;
  }
  const char byte = 0;
  ssize_t written;
  do {
    written = ::write(write_end_, &byte, 1);
  } while (written < 0 && errno == EINTR);
  if (written != 1) events_.pop_back();
}

int EventQueue::take(Event* out) {
  for (;;) {
    char byte;
    Interruption interruption;
    const ssize_t got = ::read(read_end_, &byte, 1);
    if (got < 0) {
      if (interruption.was_restore()) continue;
      return errno;
    }
    if (got == 0) return EBADF;
    std::lock_guard lock(mutex_);
    if (events_.empty()) {  // the byte's event was forgotten meanwhile
      if (stale_bytes_ > 0) --stale_bytes_;
      continue;
    }
    *out = events_.front();
    events_.pop_front();
    if (out->reported) out->reported->fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
}

void EventQueue::forget(const void* element) {
  std::lock_guard lock(mutex_);
  stale_bytes_ += std::erase_if(events_, [&](const Event& e) { return e.element == element; });
  // Takes the bytes out, so that whoever polls the descriptor does not find it readable. When a
  // thread in take() was faster, read() would wait; that thread has a byte without an event then.
  while (stale_bytes_ > 0) {
    char byte;
    const iovec out{&byte, 1};
    const ssize_t got = ::vmsplice(read_end_, &out, 1, SPLICE_F_NONBLOCK);
    if (got == 1) {
      --stale_bytes_;
    } else if (got == 0 || errno != EINTR) {
      return;
    }
  }
}

}  // namespace ferry::verbs
