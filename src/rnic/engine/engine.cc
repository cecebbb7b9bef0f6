#include "rnic/engine/engine.h"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace ferry::rnic {
namespace {

// A lane that no QP uses gets only connection requests for QP 1, and packets to be passed on. These
// may wait for so many polls of the program.
constexpr unsigned kPollsPerIdleLane = 64;

}  // namespace

Engine::Lock::Lock(Engine& engine) : engine_(engine) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
  lock_ = std::unique_lock(engine.mutex_);
}

Engine::Lock::Lock(Engine& engine, std::try_to_lock_t) : engine_(engine) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
  lock_ = std::unique_lock(engine.mutex_, std::try_to_lock);
}

Engine::Lock::~Lock() {
  if (lock_.owns_lock()) {
    if (engine_.events_.overflow_pending()) engine_.handle_overflows(engine_.now());
    engine_.events_.raise();
    ThreadSleep& sleep = engine_.thread_sleep_;
    const bool kick =
        sleep.asleep() &&
        (sleep.oversleeps(engine_.deadlines()) || sleep.misses_socket(engine_.port_full())) &&
        !engine_.suspended();
    if (kick) sleep.ends();
    const bool tell = engine_.seeker_.due();
    lock_.unlock();
    if (kick) engine_.thread_waker_.kick();
    if (tell) engine_.seeker_.tell();
  }
  pthread_setcancelstate(cancel_state_, nullptr);
}

Engine::Engine(Environment& environment, const Settings& settings, gsi::Holder::Bind bind,
               bool watches)
    : environment_(environment),
      settings_(settings),
      qps_(environment.random()),
      held_ports_(std::move(bind), watches, lanes_, qps_, thread_sleep_) {}

Engine::~Engine() = default;

void Engine::add_qp(QueuePair* qp, std::uint32_t index) {
  qps_.add(qp, index);
  suspension_.added(qp);
  timers_.reserve(qps_.all().size());
}

void Engine::remove_qp(QueuePair* qp, std::uint32_t index) {
  if (!qps_.remove(qp, index)) return;
  suspension_.removed(qp);
  timers_.remove(qp);
  scheduler_.remove(qp);
}

bool Engine::may_hold(Caller caller, transport::Time now) const {
  return caller != Caller::kAnyone && held_packets_.may_hold(caller == Caller::kThread, now);
}

void Engine::post(QueuePair* qp, bool under_way) {
  touch(qp);
  const transport::Time at = now();
  qp->reply_habit.posted(at);
  PostGatherer& gatherer = held_packets_.gatherer();
  gatherer.leaves(poll_yields_.back());  // a yield ends without the lock, and cannot say so itself
  if (held_packets_.keep(qp, under_way, at)) return;
  transmit(at);
  gatherer.leaves(now());
}

transport::Deadlines Engine::deadlines() const {
  transport::Deadlines next = timers_.next();
  next.strict = std::min(next.strict, events_.next());
  next.strict = std::min(next.strict, suspension_.next());
  next.strict = std::min(next.strict, held_ports_.next());
  return next;
}

void Engine::run_timers(transport::Time now) {
  events_.run_timers(now);
  timers_.run(now, [this](QueuePair* qp) { touch(qp); });
}

// A program that polls looks at the lanes that no QP uses only now and then. Not so while the
// progress thread sleeps on the sockets: then each packet wakes that thread, and a program that
// looks at one lane only, as fast as it can, would mostly be interrupted while it has the lock.
// That costs two more context switches: ib_write_lat takes 30 us then instead of 26.
bool Engine::looks_at_all_lanes(Caller caller) const {
  return caller != Caller::kProgram || thread_sleep_.asleep() ||
         program_runs() % kPollsPerIdleLane == 0;
}

Engine::Pass Engine::run(transport::Time now, Caller caller) {
  Pass pass;
  if (!suspension_.is_over()) {
    if (suspended()) return pass;
    suspension_.resume_some(now);
  }
  PostGatherer& gatherer = held_packets_.gatherer();
  gatherer.passes(now, caller == Caller::kProgram);
  held_ports_.run(now);
  pass.received = reception_.receive(now, looks_at_all_lanes(caller), &pass.more);
  run_timers(now);
  events_.received(now);
  const bool sends = scheduler_.has_work();
  if (sends) transmit(now, may_hold(caller, now));
  if (caller == Caller::kProgram && (sends || pass.received > 0)) gatherer.leaves(this->now());
  return pass;
}

void Engine::handle_overflows(transport::Time now) {
  while (events_.overflow_pending()) {
    events_.overflow_handled();
    qps_.for_each([now](QueuePair& qp) { qp.check_overflow(now); });
    objects_.for_each_xrc_srq([](SharedReceiveQueue& srq) { srq.check_overflow(); });
  }
}

void Engine::run_for_poller() {
  if (abandoned()) return;
  program_runs_.fetch_add(1, std::memory_order_relaxed);
  bool idle = true;
  const transport::Time at = now();
  if (!suspended()) {
    Lock lock(*this, std::try_to_lock);
    if (!lock.owned()) return;
    idle = run(at, Caller::kProgram).received == 0;
  }
  if (!poll_yields_.due(idle, at)) return;
  poll_yields_.begins(now());
  sched_yield();
  poll_yields_.ended(now());
}

}  // namespace ferry::rnic
