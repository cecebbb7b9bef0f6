#include "pipe/library/waiter.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace ferry::pd {

int Deadline::left() const {
  if (for_ever_) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
  return static_cast<int>(std::max<std::int64_t>(left, 0));
}

bool Patience::wait() {
  if (Deadline::Clock::now() >= end_) return false;
  ::sched_yield();
  return true;
}

std::shared_ptr<Waiter> Waiter::of_thread(Program& program) {
  thread_local std::shared_ptr<Waiter> waiter;
  if (!waiter || waiter->program_ != program.number) waiter = std::make_shared<Waiter>(program);
  if (!waiter->is_complete()) waiter.reset();
  return waiter;
}

Waiter::Waiter(Program& program)
    : program_(program.number),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      woken_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = woken_.get();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, woken_.get(), &event);
  // One thread is enough to see what a notice is about, and wakes the others.
  event.events = EPOLLIN | EPOLLEXCLUSIVE;
  event.data.fd = program.notice();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, program.notice(), &event);
  event.events = EPOLLRDHUP;
  event.data.fd = program.control();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, program.control(), &event);
}

void Waiter::wake() {
  ::eventfd_write(woken_.get(), 1);
}

int Waiter::sleep(Program& program, int descriptor, short events, const Deadline& deadline) {
  std::array<pollfd, 2> watched{pollfd{epoll_.get(), POLLIN, 0}, pollfd{descriptor, events, 0}};
  if (::poll(watched.data(), watched.size(), deadline.left()) < 0) return errno;
  std::array<epoll_event, 3> woken_by;
  const int count =
      watched[0].revents == 0 ? 0 : ::epoll_wait(epoll_.get(), woken_by.data(), woken_by.size(), 0);
  for (int index = 0; index < count; ++index) {
    const int which = woken_by[static_cast<std::size_t>(index)].data.fd;
    if (which == program.control()) {
      program.set_over();
    } else {
      std::uint64_t times = 0;
      ::eventfd_read(which, &times);
    }
  }
  return 0;
}

Waiter::Registration::Registration(std::shared_ptr<Waiter> waiter, Socket& socket, Program& program)
    : waiter_(std::move(waiter)), socket_(socket), program_(program) {
  ++program.sleepers;
  const std::lock_guard lock(socket.watch_mutex);
  socket.watches.push_back(waiter_);
}

Waiter::Registration::~Registration() {
  {
    const std::lock_guard lock(socket_.watch_mutex);
    const auto found = std::find(socket_.watches.begin(), socket_.watches.end(), waiter_);
    if (found != socket_.watches.end()) socket_.watches.erase(found);
  }
  --program_.sleepers;
  program_.pass_notice_on();
}

}  // namespace ferry::pd
