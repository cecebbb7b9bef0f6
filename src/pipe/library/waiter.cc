#include "pipe/library/waiter.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace ferry::pd {
namespace {

// No party of a pipe keeps a processor for so long when another one has something to do.
constexpr std::chrono::microseconds kForeignTurn{200};
// So often a thread sleeps at once after that.
constexpr int kBusyTurns = 5;
thread_local int busy_turns = 0;

}  // namespace

int Deadline::left() const {
  if (for_ever_) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
  return static_cast<int>(std::max<std::int64_t>(left, 0));
}

Patience::Patience(int microseconds)
    : now_(Deadline::Clock::now()),
      end_(now_ + std::chrono::microseconds(busy_turns > 0 ? 0 : microseconds)) {
  if (busy_turns > 0) --busy_turns;
}

bool Patience::wait() {
  if (now_ >= end_) return false;
  ::sched_yield();
  const auto before = std::exchange(now_, Deadline::Clock::now());
  if (now_ - before < kForeignTurn) return true;
  busy_turns = kBusyTurns;
  return false;
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
  // Edges: nobody has to read the eventfds. Who is woken looks at everything.
  const auto watch = [this](int descriptor, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = descriptor;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event);
  };
  watch(woken_.get(), EPOLLIN | EPOLLET);
  // One thread is enough to see what a notice is about, and wakes the others.
  watch(program.notice(), EPOLLIN | EPOLLET | EPOLLEXCLUSIVE);
  watch(program.ended(), EPOLLIN);
}

void Waiter::wake() {
  ::eventfd_write(woken_.get(), 1);
}

int Waiter::sleep(int descriptor, short events, const Deadline& deadline) {
  int timeout = deadline.left();
  if (descriptor >= 0) {
    std::array<pollfd, 2> watched{pollfd{epoll_.get(), POLLIN, 0}, pollfd{descriptor, events, 0}};
    if (::poll(watched.data(), watched.size(), timeout) < 0) return errno;
    timeout = 0;
  }
  std::array<epoll_event, 3> woken_by;
  const int count = ::epoll_wait(epoll_.get(), woken_by.data(), woken_by.size(), timeout);
  if (count < 0) return errno;
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
