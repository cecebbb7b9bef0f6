#include "rnic/adapter.h"

#include <sched.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "gsi/packet.h"
#include "rnic/completion_queue.h"
#include "rnic/progress_thread.h"
#include "rnic/queue_pair.h"
#include "rnic/shared_receive_queue.h"
#include "wire/envelope.h"
#include "wire/icrc.h"

namespace ferry::rnic {
namespace {

constexpr unsigned kReceiveBatchesPerPass = 4;
// A lane that no QP uses is listened to for QP 1 alone: connection requests, which may wait for so
// many polls of the program.
constexpr unsigned kPollsPerIdleLane = 64;
// UDP port 4791 beside another slot: how often it is looked at, at most, whether it is needed, and
// at least while it is; how often it is tried to get it where nobody tells that it was freed.
constexpr transport::Time kLooksAtHeldPorts = std::chrono::milliseconds(50);
constexpr transport::Time kNextLookAtHeldPorts = std::chrono::seconds(1);
constexpr transport::Time kTriesToHoldPorts = std::chrono::milliseconds(250);

}  // namespace

Adapter::Lock::Lock(Adapter& adapter) : adapter_(adapter) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
  lock_ = std::unique_lock(adapter.mutex_);
}

Adapter::Lock::Lock(Adapter& adapter, std::try_to_lock_t) : adapter_(adapter) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
  lock_ = std::unique_lock(adapter.mutex_, std::try_to_lock);
}

Adapter::Lock::~Lock() {
  if (lock_.owns_lock()) {
    if (adapter_.events_.overflow_pending()) adapter_.handle_overflows(adapter_.now());
    adapter_.events_.raise();
    ThreadSleep& sleep = adapter_.thread_sleep_;
    const bool kick =
        sleep.asleep() &&
        (sleep.oversleeps(adapter_.deadlines()) || sleep.misses_socket(adapter_.port_full())) &&
        !adapter_.suspended();
    if (kick) sleep.ends();
    const bool tell = adapter_.seeker_.due();
    lock_.unlock();
    if (kick) adapter_.thread_->kick();
    if (tell) adapter_.seeker_.tell();
  }
  pthread_setcancelstate(cancel_state_, nullptr);
}

Adapter::Adapter(Environment& environment, const Settings& settings, gsi::Holder::Bind bind,
                 bool watches)
    : environment_(environment),
      settings_(settings),
      holder_(std::move(bind), watches),
      qps_(environment.random()) {}

Adapter::~Adapter() = default;

void Adapter::add_qp(QueuePair* qp, std::uint32_t index) {
  qps_.add(qp, index);
  suspension_.added(qp);
  timers_.reserve(qps_.all().size());
}

void Adapter::remove_qp(QueuePair* qp, std::uint32_t index) {
  if (!qps_.remove(qp, index)) return;
  suspension_.removed(qp);
  timers_.remove(qp);
  scheduler_.remove(qp);
}

bool Adapter::may_hold(Caller caller, transport::Time now) const {
  return caller != Caller::kAnyone && held_packets_.may_hold(caller == Caller::kThread, now);
}

void Adapter::post(QueuePair* qp, bool under_way) {
  touch(qp);
  const transport::Time at = now();
  qp->reply_habit.posted(at);
  PostGatherer& gatherer = held_packets_.gatherer();
  gatherer.leaves(poll_yields_.back());  // a yield ends without the lock
  if (held_packets_.keep(qp, under_way, at)) return;
  transmit(at);
  gatherer.leaves(now());
}

void Adapter::handle(Lane& lane, port::Port& port, const port::Received& received,
                     transport::Time now) {
  if (!wire::verify(received.bytes, received.from, port.local(), received.ip_identification)) {
    ++drops_.bad_icrc;
    return;
  }
  const auto packet = wire::parse(received.bytes);
  if (!packet) {
    ++drops_.malformed;
    return;
  }
  if (QueuePair* qp = find(lane, packet->header.dest_qpn)) {
    touch(qp);
    qp->handle_packet(*packet, received.from, now);
  } else {
    handle_other(lane, port, received, *packet, now);
  }
}

QueuePair* Adapter::find(const Lane& lane, std::uint32_t qpn) const {
  QueuePair* qp = port::slot_of(qpn) == lane.slot ? qps_[port::index_of(qpn)] : nullptr;
  return qp != nullptr && qp->serves(lane) ? qp : nullptr;
}

// What is for QP 1, for another slot, or was passed on to this one. Both ends of the latter look at
// the port: who has slot 0 opens no envelope, and who has another slot passes on only what came to
// the port that it holds beside it.
void Adapter::handle_other(Lane& lane, port::Port& port, const port::Received& received,
                           const wire::Packet& packet, transport::Time now) {
  const port::Endpoint local = port.local();
  if (packet.header.dest_qpn == gsi::kQpn && local.udp_port == port::kRoceUdpPort) {
    const auto mad = management_ ? gsi::mad_of(packet) : std::nullopt;
    if (mad) management_(*mad, received.from.address, local.address);
    return;
  }
  if (wire::pass_on(port, packet, received.bytes, received.from)) {
    passed_on_ = true;
    return;
  }
  const auto passed = wire::open_envelope(packet, received.from, local);
  QueuePair* qp = passed ? find(lane, passed->packet.header.dest_qpn) : nullptr;
  if (qp == nullptr) {
    ++drops_.unknown_qp;
    return;
  }
  touch(qp);
  qp->handle_packet(passed->packet, passed->from, now);
}

void Adapter::handle_multicast(const MulticastGroups::Group& group, const port::Received& received,
                               transport::Time now) {
  constexpr std::uint32_t kMulticastQpn = 0xFFFFFF;
  if (!wire::verify(received.bytes, received.from, group.port->local(),
                    received.ip_identification)) {
    ++drops_.bad_icrc;
    return;
  }
  const auto packet = wire::parse(received.bytes);
  if (!packet) {
    ++drops_.malformed;
    return;
  }
  if (packet->header.dest_qpn != kMulticastQpn) {
    ++drops_.unknown_qp;
    return;
  }
  for (QueuePair* qp : group.members) {
    qp->handle_multicast(*packet, received.from, group.address, now);
    touch(qp);
  }
}

std::size_t Adapter::receive(transport::Time now, Caller caller, bool* more) {
  std::size_t total = 0;
  // Where the thread listens beside the program, each packet wakes it, and a program that looks at
  // the one lane as fast as it can is mostly interrupted while it has the lock, which costs two
  // more switches: ib_write_lat takes 30 us then instead of 26.
  const bool all = caller != Caller::kProgram || thread_sleep_.asleep() ||
                   program_runs() % kPollsPerIdleLane == 0;
  for (Lane& lane : lanes_) {
    if (!lane.listens() || (lane.users == 0 && !all)) continue;
    for (unsigned batch = 0; batch < kReceiveBatchesPerPass; ++batch) {
      const std::size_t count = lane.port->receive(batch_);
      for (std::size_t i = 0; i < count; ++i) handle(lane, *lane.port, batch_[i], now);
      total += count;
      if (count < batch_.size()) break;
      if (batch + 1 == kReceiveBatchesPerPass) *more = true;
    }
    if (passed_on_) flush_passed(*lane.port);
  }
  if (!holder_.ports().empty()) total += receive_held(now, more);
  for (const auto& group : multicast_.groups()) {
    if (group->port == nullptr) continue;
    const std::size_t count = group->port->receive(batch_);
    for (std::size_t i = 0; i < count; ++i) handle_multicast(*group, batch_[i], now);
    total += count;
    if (count == batch_.size()) *more = true;
  }
  return total;
}

// To this host: what it has no room for is lost.
void Adapter::flush_passed(port::Port& port) {
  passed_on_ = false;
  port.flush();
}

std::size_t Adapter::receive_held(transport::Time now, bool* more) {
  std::size_t total = 0;
  for (const auto& [address, port] : holder_.ports()) {
    const std::size_t count = port->receive(batch_);
    for (std::size_t i = 0; i < count; ++i) {
      handle(lanes_[lane_of(address)], *port, batch_[i], now);
    }
    total += count;
    if (count == batch_.size()) *more = true;
    if (passed_on_) flush_passed(*port);
  }
  return total;
}

void Adapter::meets_stranger(const Lane& lane) {
  if (lane.port == nullptr || lane.slot == 0) return;
  const transport::Time earliest = looked_at_held_ports_ + kLooksAtHeldPorts;
  look_at_held_ports_at_ = std::min(look_at_held_ports_at_, std::max(now(), earliest));
}

void Adapter::let_go_of_ports() {
  holder_.let_go();
  awaits_port_ = false;
  look_at_held_ports_at_ = transport::kNever;
  looked_at_held_ports_ = kNotYet;
}

void Adapter::look_whether_port_was_freed() {
  if (!suspended() && holder_.port_was_freed()) look_at_held_ports_at_ = now();
}

// Whether a peer answers as one of our kind is known soon, and is seen at the next look.
void Adapter::look_at_held_ports(transport::Time now) {
  looked_at_held_ports_ = now;
  look_at_held_ports_at_ = transport::kNever;
  std::vector<port::Address> wanted;
  for (const Lane& lane : lanes_) {
    if (lane.port == nullptr || lane.slot == 0) continue;
    const auto& all = qps_.all();
    const bool strangers = std::any_of(all.begin(), all.end(), [&lane](const QueuePair* qp) {
      return qp->serves(lane) && qp->hears_strangers();
    });
    if (strangers) wanted.push_back(lane.port->local().address);
  }
  const auto sockets = [this] {
    return std::pair(holder_.ports().size(), holder_.watch_descriptor());
  };
  const auto before = sockets();
  const bool holds_all = holder_.hold(wanted);
  if (sockets() != before)
    thread_sleep_.sockets_changed();  // the progress thread is to watch others
  awaits_port_ = holder_.watch_descriptor() >= 0;
  if (wanted.empty()) return;
  look_at_held_ports_at_ =
      now + (holds_all || awaits_port() ? kNextLookAtHeldPorts : kTriesToHoldPorts);
}

transport::Deadlines Adapter::deadlines() const {
  transport::Deadlines next = timers_.next();
  next.strict = std::min(next.strict, events_.next());
  next.strict = std::min(next.strict, suspension_.next());
  next.strict = std::min(next.strict, look_at_held_ports_at_);
  return next;
}

void Adapter::run_timers(transport::Time now) {
  events_.run_timers(now);
  timers_.run(now, [this](QueuePair* qp) { touch(qp); });
}

Adapter::Pass Adapter::run(transport::Time now, Caller caller) {
  Pass pass;
  if (!suspension_.is_over()) {
    if (suspended()) return pass;
    suspension_.resume_some(now);
  }
  PostGatherer& gatherer = held_packets_.gatherer();
  gatherer.passes(now, caller == Caller::kProgram);
  if (look_at_held_ports_at_ <= now) look_at_held_ports(now);
  pass.received = receive(now, caller, &pass.more);
  run_timers(now);
  events_.received(now);
  const bool sends = scheduler_.has_work();
  if (sends) transmit(now, may_hold(caller, now));
  if (caller == Caller::kProgram && (sends || pass.received > 0)) gatherer.leaves(this->now());
  return pass;
}

void Adapter::handle_overflows(transport::Time now) {
  while (events_.overflow_pending()) {
    events_.overflow_handled();
    qps_.for_each([now](QueuePair& qp) { qp.check_overflow(now); });
    objects_.for_each_xrc_srq([](SharedReceiveQueue& srq) { srq.check_overflow(); });
  }
}

void Adapter::run_for_poller() {
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

void Adapter::listen() {
  if (thread_ != nullptr) thread_->listen();
}

}  // namespace ferry::rnic
