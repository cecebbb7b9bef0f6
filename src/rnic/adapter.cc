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

constexpr unsigned kPacketsPerTurn = 16;  // of one QP, before the next one's turn
constexpr unsigned kWaitingPerPass = 16;  // QPs that wait for room, tried per pass
constexpr unsigned kReceiveBatchesPerPass = 4;
// A lane that no QP uses is listened to for QP 1 alone: connection requests, which may wait for so
// many polls of the program.
constexpr unsigned kPollsPerIdleLane = 64;
// QPs that rest are looked at and resumed beside a program that wants the engine too: so many with
// the lock held, and none for so long after them.
constexpr unsigned kRestPerTurn = 64;
constexpr unsigned kResumedPerTurn = 64;
constexpr transport::Time kResumeInterval = std::chrono::microseconds(50);
// No acknowledgement is held for longer than this while the progress thread listens
// (reply_habit.h).
constexpr transport::Time kLongestHold = std::chrono::milliseconds(1);
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
        (sleep.oversleeps(adapter_.deadlines()) || sleep.misses_socket(adapter_.port_full_)) &&
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
  resting_.added(qp);
  timers_.reserve(qps_.all().size());
}

void Adapter::remove_qp(QueuePair* qp, std::uint32_t index) {
  if (!qps_.remove(qp, index)) return;
  resting_.removed(qp);
  timers_.remove(qp);
  const auto unlink = [qp](QueuePair*& head, QueuePair*& tail, QueuePair* QueuePair::*next) {
    QueuePair* previous = nullptr;
    for (QueuePair* at = head; at != nullptr; previous = at, at = at->*next) {
      if (at != qp) continue;
      (previous != nullptr ? previous->*next : head) = at->*next;
      if (tail == qp) tail = previous;
      return true;
    }
    return false;
  };
  unlink(touched_head_, touched_tail_, &QueuePair::next_touched);
  if (unlink(waiting_head_, waiting_tail_, &QueuePair::next_waiting)) --waiting_count_;
}

void Adapter::touch(QueuePair* qp) {
  if (qp->turn != Turn::kNone) {
    if (transport::kMovable && qp->turn == Turn::kResting) disturb(qp);
    if (!transport::kMovable || qp->turn == Turn::kTouched) return;
  }
  qp->turn = Turn::kTouched;
  qp->next_touched = nullptr;
  (touched_tail_ != nullptr ? touched_tail_->next_touched : touched_head_) = qp;
  touched_tail_ = qp;
}

QueuePair* Adapter::pop_touched() {
  QueuePair* qp = touched_head_;
  if (qp == nullptr) return nullptr;
  touched_head_ = qp->next_touched;
  if (touched_head_ == nullptr) touched_tail_ = nullptr;
  qp->turn = Turn::kNone;
  return qp;
}

void Adapter::disturb(QueuePair* qp) {
  resting_.disturbed(qp);
  if (mode() == Mode::kServing) return;
  qp->transport().stop_untold();
  if (mode() == Mode::kResuming) qp->resume(resumes_by_rollback_, now());
}

void Adapter::rest_begins(transport::Time now) {
  if (resumes_resting()) {
    wake_all();
    transmit(now);
  }
  resting_.begin(qps_.all());
}

bool Adapter::rest() {
  return !suspended() && resting_.settle(kRestPerTurn, lanes_);
}

void Adapter::resume_resting(bool rollback, transport::Time now) {
  resting_.end();
  resumes_by_rollback_ = rollback;
  resume_at_ = now;
  mode_ = Mode::kResuming;
}

void Adapter::resume_in_turn(unsigned most) {
  for (; most > 0; --most) {
    QueuePair* qp = resting_.next();
    if (qp == nullptr) {
      mode_ = Mode::kServing;
      return;
    }
    touch(qp);
  }
}

void Adapter::resume_some(transport::Time now) {
  if (resume_at_ > now) return;
  resume_in_turn(kResumedPerTurn);
  resume_at_ = now + kResumeInterval;
}

void Adapter::wake_all() {
  if (mode() == Mode::kResuming) return resume_in_turn(QpTable::kMaxQps + 1);
  for (QueuePair* qp : qps_.all()) {
    if (qp->turn == Turn::kResting) touch(qp);
  }
}

std::uint32_t Adapter::epochs_ahead() const {
  if (mode() == Mode::kServing) return 0;
  return mode() == Mode::kResuming && resumes_by_rollback_ ? 2 : 1;
}

void Adapter::push_waiting(QueuePair* qp) {
  if (qp->waiting) return;
  qp->waiting = true;
  qp->next_waiting = nullptr;
  (waiting_tail_ != nullptr ? waiting_tail_->next_waiting : waiting_head_) = qp;
  waiting_tail_ = qp;
  ++waiting_count_;
}

QueuePair* Adapter::pop_waiting() {
  QueuePair* qp = waiting_head_;
  if (qp == nullptr) return nullptr;
  waiting_head_ = qp->next_waiting;
  if (waiting_head_ == nullptr) waiting_tail_ = nullptr;
  --waiting_count_;
  qp->waiting = false;
  return qp;
}

bool Adapter::serve(QueuePair* qp, transport::Time now) {
  transport::Transport& transport = qp->transport();
  const unsigned sent = transport.transmit(now, kPacketsPerTurn);
  if (transport.has_work()) {
    if (sent > 0) {
      touch(qp);
    } else {
      push_waiting(qp);
    }
  } else if (transport.waits_for_window()) {
    push_waiting(qp);
  }
  timers_.schedule(qp);
  return sent > 0;
}

void Adapter::flush() {
  port_full_ = false;
  for (Lane& lane : lanes_) {
    if (lane.port != nullptr && lane.users > 0 && !lane.port->flush()) port_full_ = true;
  }
}

bool Adapter::thread_looks_soon(transport::Time now) const {
  return thread_sleep_.looks_within(kLongestHold, now);
}

// Should the program cease to poll, the thread sends what it held, and must not sleep for long then.
bool Adapter::may_hold(Caller caller, transport::Time now) const {
  if (caller == Caller::kAnyone || events_.eventful(now)) return false;
  return caller == Caller::kThread || thread_looks_soon(now);
}

transport::Time Adapter::held_at_most_until(transport::Time now) {
  const bool held = std::exchange(held_lately_, false) && !events_.eventful(now);
  return std::min(held_until_, held ? now + kLongestHold : transport::kNever);
}

void Adapter::transmit(transport::Time now, bool hold) {
  if (suspended()) return;
  QueuePair* held = nullptr;
  held_until_ = transport::kNever;
  bool progress = true;
  while (progress) {
    progress = false;
    while (QueuePair* qp = pop_touched()) {
      const bool answers = qp->transport().only_acknowledges() && qp->reply_habit.asked(now);
      held_lately_ |= answers;
      if (answers && hold) {
        qp->next_touched = std::exchange(held, qp);
        held_until_ = std::min(held_until_, qp->reply_habit.until());
      } else {
        progress |= serve(qp, now);
      }
    }
    for (unsigned tries = std::min(waiting_count_, kWaitingPerPass); tries > 0; --tries) {
      QueuePair* qp = pop_waiting();
      progress |= serve(qp, now);
    }
    flush();
  }
  while (held != nullptr) touch(std::exchange(held, held->next_touched));
}

// What may be kept leaves at the latest when an answer wakes the thread, or when a parked one looks.
void Adapter::post(QueuePair* qp, bool under_way) {
  touch(qp);
  const transport::Time at = now();
  qp->reply_habit.posted(at);
  gatherer_.leaves(poll_yields_.back());  // a yield ends without the lock
  if (gatherer_.keep(at, under_way && (thread_looks_soon(at) || qp->transport().awaits_answer()))) {
    held_until_ = std::min(held_until_, at + kLongestHold);
    return;
  }
  transmit(at);
  gatherer_.leaves(now());
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
  if (resumes_resting()) next.strict = std::min(next.strict, resume_at_);
  next.strict = std::min(next.strict, look_at_held_ports_at_);
  return next;
}

void Adapter::run_timers(transport::Time now) {
  events_.run_timers(now);
  timers_.run(now, [this](QueuePair* qp) { touch(qp); });
}

Adapter::Pass Adapter::run(transport::Time now, Caller caller) {
  Pass pass;
  if (mode() != Mode::kServing) {
    if (suspended()) return pass;
    resume_some(now);
  }
  gatherer_.passes(now, caller == Caller::kProgram);
  if (look_at_held_ports_at_ <= now) look_at_held_ports(now);
  pass.received = receive(now, caller, &pass.more);
  run_timers(now);
  events_.received(now);
  const bool sends = touched_head_ != nullptr || waiting_head_ != nullptr || port_full_;
  if (sends) transmit(now, may_hold(caller, now));
  if (caller == Caller::kProgram && (sends || pass.received > 0)) gatherer_.leaves(this->now());
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
