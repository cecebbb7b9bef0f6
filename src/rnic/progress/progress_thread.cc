#include "rnic/progress/progress_thread.h"

#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/own_thread.h"

namespace ferry::rnic {
namespace {

constexpr unsigned kWastedFirst = 16;
constexpr unsigned kWastedLast = 1024;
constexpr transport::Time kFirstTick = std::chrono::milliseconds(1);
constexpr transport::Time kLastTick = std::chrono::milliseconds(8);
constexpr unsigned kIdleTicks = 8;  // without a poll: the program has ceased to poll
// If it was parked for a shorter time, it should not have parked.
constexpr transport::Time kWorthParking = std::chrono::milliseconds(20);
// A program that polls does so within this time, again and again. One that waits for data in its
// memory ceases to poll when it has got its completion.
constexpr transport::Time kGrace = std::chrono::microseconds(50);
constexpr unsigned kGraces = 4;
// How long it looks for the next packet before it sleeps: about as long as waking it takes.
constexpr transport::Time kLook = std::chrono::microseconds(30);
constexpr transport::Time kLongestLook = std::chrono::milliseconds(1);  // then at the link, too

transport::Time wakes_at(const transport::Deadlines& next, transport::Time now) {
  if (next.lenient == transport::kNever) return next.strict;
  return std::min(next.strict, std::max(next.lenient, now + LenientTimer::kLenience));
}

timespec to_timespec(transport::Time time) {
  const auto count = std::max<std::int64_t>(time.count(), 0);
  return {static_cast<time_t>(count / 1'000'000'000), static_cast<long>(count % 1'000'000'000)};
}

// Raises this thread's priority, since a NIC does not wait for a processor until a program that
// spins has used up its time slice. Without CAP_SYS_NICE or an RLIMIT_NICE the priority stays as it
// is.
void raise_priority(unsigned by) {
  errno = 0;
  const int nice = getpriority(PRIO_PROCESS, 0);
  if (by == 0 || errno != 0) return;
  [[maybe_unused]] const int refused = setpriority(PRIO_PROCESS, 0, nice - static_cast<int>(by));
}

}  // namespace

ProgressThread::~ProgressThread() {
  if (started_) {
    {
      std::lock_guard lock(mutex_);
      request_.store(Request::kEnd);
    }
    changed_.notify_all();
    waker_.kick();
    pthread_join(thread_, nullptr);
  }
  waker_.close();
}

int ProgressThread::start() {
  if (const int error = waker_.open(); error != 0) return error;
  link_.open();
  const int error = start_own_thread(&thread_, entry, this);
  started_ = error == 0;
  return error;
}

void* ProgressThread::entry(void* self) {
  pthread_setname_np(pthread_self(), "ferry-rnic");
  auto* thread = static_cast<ProgressThread*>(self);
  raise_priority(thread->engine_.settings().progress_priority);
  thread->main();
  return nullptr;
}

void ProgressThread::detach() {
  std::unique_lock lock(mutex_);
  if (!started_ || detached_) return;
  request_.store(Request::kDetach);
  waker_.kick();
  changed_.wait(lock, [this] { return detached_; });
}

int ProgressThread::attach() {
  std::lock_guard lock(mutex_);
  if (!started_ || !detached_) return 0;
  if (const int error = waker_.open(); error != 0) return error;
  link_.open();
  request_.store(Request::kServe);
  detached_ = false;
  changed_.notify_all();
  return 0;
}

void ProgressThread::abandon() {
  started_ = false;
  link_.close();
  waker_.abandon();
}

void ProgressThread::main() {
  for (;;) {
    serve();
    std::unique_lock lock(mutex_);
    if (request_.load() == Request::kDetach) {
      waker_.close();
      link_.close();
      detached_ = true;
      changed_.notify_all();
      // It does not wait for request_ to change: that may be the next kDetach by the time this
      // thread is awake.
      changed_.wait(lock, [this] { return !detached_ || request_.load() == Request::kEnd; });
    }
    if (request_.load() == Request::kEnd) return;
  }
}

ProgressThread::Wake ProgressThread::sleep_listening() {
  constexpr nfds_t kFirstSocket = 3;
  std::array<pollfd, kFirstSocket + 2 * kLanes + MulticastGroups::kMaxGroups> descriptors;
  descriptors[0] = {waker_.descriptor(), POLLIN, 0};
  descriptors[1] = {link_.descriptor(), POLLIN, 0};  // ppoll() passes over a negative one
  descriptors[2] = {-1, POLLIN, 0};
  nfds_t count = kFirstSocket;
  transport::Time now, until;
  {
    Engine::Lock lock(engine_);
    now = engine_.now();
    until = std::min(wakes_at(engine_.deadlines(), now), engine_.held_packets().at_most_until(now));
    const bool full = engine_.port_full();
    if (!engine_.suspended()) {
      for (const Lane& lane : engine_.lanes()) {
        if (!lane.listens()) continue;
        const auto events = static_cast<short>(POLLIN | (full ? POLLOUT : 0));
        descriptors[count++] = {lane.port->descriptor(), events, 0};
      }
      for (const auto& group : engine_.multicast().groups()) {
        if (group->port != nullptr) descriptors[count++] = {group->port->descriptor(), POLLIN, 0};
      }
      for (const auto& [address, port] : engine_.held_ports().ports()) {
        descriptors[count++] = {port->descriptor(), POLLIN, 0};
      }
      descriptors[2].fd = engine_.held_ports().watch_descriptor();
    } else {
      until = transport::kNever;
    }
    engine_.thread_sleep().begins(until, full);
  }
  if (asked_to_leave() || until <= now) return Wake::kOther;
  const timespec timeout = to_timespec(until - now);
  const int ready =
      ppoll(descriptors.data(), count, until == transport::kNever ? nullptr : &timeout, nullptr);
  if (ready <= 0) return Wake::kOther;
  if (descriptors[0].revents != 0) {
    waker_.drain();
    return Wake::kOther;
  }
  if (descriptors[1].revents != 0) {
    look_at_link();
    return Wake::kOther;
  }
  if (descriptors[2].revents != 0) {
    look_whether_port_was_freed();
    return Wake::kOther;
  }
  for (nfds_t i = kFirstSocket; i < count; ++i) {
    if ((descriptors[i].revents & POLLOUT) != 0) return Wake::kOther;
  }
  return Wake::kPacket;
}

void ProgressThread::look_at_link() {
  bool up = false;
  if (link_.changed(&up)) link_changed_(up);
}

void ProgressThread::look_whether_port_was_freed() {
  Engine::Lock lock(engine_);
  engine_.look_whether_port_was_freed();
}

bool ProgressThread::look(std::uint64_t runs) {
  const transport::Time begin = engine_.now();
  transport::Time last = begin, before = begin;
  for (;;) {
    sched_yield();
    if (asked_to_leave() || engine_.polled_since(runs)) break;
    Engine::Lock lock(engine_, std::try_to_lock);
    if (!lock.owned()) break;
    const transport::Time now = engine_.now();
    if (now - before > kLook) return false;  // somebody else needs this CPU
    before = now;
    if (engine_.run(now, Engine::Caller::kThread).received != 0) last = now;
    if (now - last >= kLook || now - begin >= kLongestLook) break;
  }
  return last != begin;
}

void ProgressThread::pause(transport::Time time) {
  pollfd event{waker_.descriptor(), POLLIN, 0};
  const timespec timeout = to_timespec(time);
  if (ppoll(&event, 1, &timeout, nullptr) > 0) waker_.drain();
}

bool ProgressThread::work_waits() {
  Engine::Lock lock(engine_);
  if (engine_.suspended()) return false;
  const transport::Deadlines next = engine_.deadlines();
  const transport::Time now = engine_.now();
  if (std::min(engine_.held_packets().until(), next.strict) <= now) return true;
  if (next.lenient <= now - LenientTimer::kLenience) return true;
  for (const Lane& lane : engine_.lanes()) {
    if (!lane.listens()) continue;
    pollfd socket{lane.port->descriptor(), POLLIN, 0};
    if (::poll(&socket, 1, 0) > 0) return true;
  }
  for (const auto& group : engine_.multicast().groups()) {
    if (group->port == nullptr) continue;
    pollfd socket{group->port->descriptor(), POLLIN, 0};
    if (::poll(&socket, 1, 0) > 0) return true;
  }
  for (const auto& [address, port] : engine_.held_ports().ports()) {
    pollfd socket{port->descriptor(), POLLIN, 0};
    if (::poll(&socket, 1, 0) > 0) return true;
  }
  return false;
}

bool ProgressThread::program_serves_itself() {
  for (unsigned grace = 0; grace < kGraces; ++grace) {
    const std::uint64_t before = engine_.program_runs();
    pause(kGrace);
    if (!engine_.polled_since(before)) return false;
  }
  return true;
}

transport::Time ProgressThread::park() {
  const transport::Time begin = engine_.now();
  transport::Time tick = kFirstTick;
  unsigned idle = 0;
  const std::uint64_t requests = waker_.listen_requests();
  waker_.set_parked(true);
  for (; !asked_to_leave() && waker_.listen_requests() == requests;
       tick = std::min(tick * 2, kLastTick)) {
    const std::uint64_t before = engine_.program_runs();
    // The slack lets the timer run out with the next interrupt that comes anyway: one of its own
    // takes 10 us of the program's time.
    prctl(PR_SET_TIMERSLACK, (tick / 2).count());
    pause(tick);
    prctl(PR_SET_TIMERSLACK, 0);
    look_at_link();
    if (engine_.held_ports().awaits()) look_whether_port_was_freed();
    // The program has polled all the time. If it has just ceased, the next look tells.
    if (engine_.program_runs() - before > static_cast<std::uint64_t>(tick / kGrace)) {
      idle = 0;
      continue;
    }
    idle = engine_.polled_since(before) ? 0 : idle + 1;
    if (idle == kIdleTicks) break;
    // The program may have polled since the last look, and have ceased now. If something waits or
    // is due, a closer look tells.
    if (work_waits() && !program_serves_itself()) break;
  }
  waker_.set_parked(false);
  return engine_.now() - begin;
}

void ProgressThread::serve() {
  look_at_link();  // after a move the link is another one
  std::uint64_t requests = waker_.listen_requests();
  while (!asked_to_leave()) {
    const std::uint64_t runs = engine_.program_runs();
    const Wake wake = sleep_listening();
    Engine::Pass pass;
    do {
      Engine::Lock lock(engine_);
      engine_.thread_sleep().ends();
      pass = engine_.run(engine_.now(), Engine::Caller::kThread);
    } while (pass.more && !asked_to_leave());
    if (wake == Wake::kPacket && !engine_.polled_since(runs) && looks_.due()) {
      looks_.ended(look(runs));
    }
    // Did the program poll, so that this wake-up was wasted? Who took the packets does not tell: on
    // a core that both share it is always this thread. Nor does a poll since this thread fell
    // asleep tell that the program would have taken them: it may have polled for a completion, and
    // wait for data in its memory now. So wake-ups with a poll are only counted here, and
    // program_serves_itself() looks more closely now and then.
    if (engine_.polled_since(runs)) {
      ++wasted_;
    } else if (wake == Wake::kPacket) {
      wasted_ -= std::min(wasted_, 1u);
    }
    if (const std::uint64_t now = waker_.listen_requests(); now != requests) {
      requests = now;
      wasted_ = 0;
    }
    if (wasted_ < wasted_limit_) continue;
    wasted_ = 0;
    const bool parked = program_serves_itself() && park() >= kWorthParking;
    wasted_limit_ = parked ? kWastedFirst : std::min(wasted_limit_ * 2, kWastedLast);
  }
  Engine::Lock lock(engine_);
  engine_.thread_sleep().ends();
}

}  // namespace ferry::rnic
