#include "pipe/copier.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace ferry::pipe {
namespace {

using Clock = std::chrono::steady_clock;

// Of each queue, before the other programs have their turn.
constexpr std::size_t kTurn = 64;

// No party of a pipe keeps a processor for so long when another one has something to do.
constexpr std::chrono::microseconds kForeignTurn{200};
constexpr int kBusyTurns = 5;

constexpr std::chrono::milliseconds kLongest{60'000};  // of a sleep while something is held

void watch(int epoll, int descriptor) {
  epoll_event event{};
  // Edges: nobody reads a doorbell here, and what a program does with its own is of no account.
  event.events = EPOLLIN | EPOLLET;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

}  // namespace

Copier::Copier(Driver& driver, std::optional<int> processor, std::chrono::microseconds patience,
               int completions)
    : driver_(driver),
      patience_(patience),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  watch(epoll_.get(), wake_.get());
  if (completions >= 0) watch(epoll_.get(), completions);
  thread_ = std::thread([this, processor] { run(processor); });
}

Copier::~Copier() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake();
  thread_.join();
}

void Copier::add(std::shared_ptr<Session> session) {
  watch(epoll_.get(), session->doorbell());
  {
    const std::lock_guard lock(mutex_);
    auto sessions = std::make_shared<Sessions>(*sessions_);
    sessions->push_back(std::move(session));
    sessions_ = std::move(sessions);
  }
  wake();
}

void Copier::remove(const Session& session) {
  {
    const std::lock_guard lock(mutex_);
    auto sessions = std::make_shared<Sessions>(*sessions_);
    std::erase_if(*sessions, [&](const auto& candidate) { return candidate.get() == &session; });
    sessions_ = std::move(sessions);
  }
  // The program may have the doorbell still.
  if (session.is_open()) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session.doorbell(), nullptr);
  wake();
}

void Copier::wake() {
  ::eventfd_write(wake_.get(), 1);
}

void Copier::run(std::optional<int> processor) {
  if (processor) {
    cpu_set_t processors;
    CPU_ZERO(&processors);
    CPU_SET(*processor, &processors);
    ::sched_setaffinity(0, sizeof processors, &processors);
  }
  for (;;) {
    std::shared_ptr<const Sessions> sessions;
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      sessions = sessions_;
    }
    if (pass(*sessions)) {
      busy_until_ = Clock::now() + patience_;
    } else if (!look_on()) {
      sleep(*sessions);
      busy_until_ = Clock::now() + patience_;
    }
  }
}

// False: it is time to sleep.
bool Copier::look_on() {
  const auto before = Clock::now();
  if (before >= busy_until_) return false;
  if (sleeps_at_once_ > 0) {
    --sleeps_at_once_;
    return false;
  }
  ::sched_yield();
  if (Clock::now() - before >= kForeignTurn) sleeps_at_once_ = kBusyTurns;
  return true;
}

bool Copier::pass(const Sessions& sessions) {
  bool any = false;
  for (const auto& session : sessions) any |= driver_.work(session, kTurn);
  any |= driver_.pump();
  driver_.announce();
  return any;
}

void Copier::sleep(const Sessions& sessions) {
  for (const auto& session : sessions) session->want_doorbell();
  // Who has submitted something before has not rung.
  const bool missed = std::any_of(sessions.begin(), sessions.end(),
                                  [](const auto& session) { return session->has_submissions(); });
  if (!missed) {
    // What a limit of a rate holds, no doorbell tells of.
    const auto held = driver_.holds_for();
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(held.value_or(kLongest));
    std::array<epoll_event, 64> events;
    ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                 held ? static_cast<int>(std::min(rest, kLongest).count()) : -1);
  }
  for (const auto& session : sessions) session->forget_doorbell();
}

}  // namespace ferry::pipe
