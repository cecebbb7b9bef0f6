#include "virtual/events/steady_descriptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace ferry::virt {
namespace {

int change(int set, int operation, int descriptor, bool muted) {
  epoll_event event{};
  if (!muted) event.events = EPOLLIN;
  return ::epoll_ctl(set, operation, descriptor, &event) == 0 ? 0 : errno;
}

}  // namespace

SteadyDescriptor::~SteadyDescriptor() {
  // Not by libc, whose functions the library answers: it may hold locks that these would take.
  if (bell_ >= 0) ::syscall(SYS_close, bell_);
  if (set_ >= 0) ::syscall(SYS_close, set_);
}

int SteadyDescriptor::open() {
  set_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (set_ < 0) return errno;
  bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (bell_ < 0) return errno;
  return change(set_, EPOLL_CTL_ADD, bell_, false);
}

bool SteadyDescriptor::is_open() const {
  return change(set_, EPOLL_CTL_MOD, bell_, false) == 0;
}

int SteadyDescriptor::watch(int descriptor) {
  if (const int error = change(set_, EPOLL_CTL_ADD, descriptor, is_muted_)) return error;
  watched_ = descriptor;
  device_blocks_ = (::fcntl(descriptor, F_GETFL) & O_NONBLOCK) == 0;
  return 0;
}

void SteadyDescriptor::unwatch() {
  if (watched_ >= 0) ::epoll_ctl(set_, EPOLL_CTL_DEL, watched_, nullptr);
  watched_ = -1;
}

void SteadyDescriptor::mute(bool muted) {
  is_muted_ = muted;
  if (watched_ >= 0) change(set_, EPOLL_CTL_MOD, watched_, muted);
}

void SteadyDescriptor::let_device_block(bool blocks) {
  if (watched_ < 0 || device_blocks_ == blocks) return;
  const int flags = ::fcntl(watched_, F_GETFL);
  ::fcntl(watched_, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
  device_blocks_ = blocks;
}

void SteadyDescriptor::ring() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const long written = ::syscall(SYS_write, bell_, &one, sizeof one);
}

void SteadyDescriptor::silence() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(bell_, &count, sizeof count);
}

bool SteadyDescriptor::blocks() const {
  return (::fcntl(set_, F_GETFL) & O_NONBLOCK) == 0;
}

int SteadyDescriptor::wait() const {
  if (!blocks()) return EAGAIN;
  pollfd set{set_, POLLIN, 0};
  ::poll(&set, 1, -1);
  return 0;
}

}  // namespace ferry::virt
