#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "rnic/context.h"
#include "transport/movable.h"

// How an RNIC stops, gives its sockets away, takes them back and goes on (docs/protocol.md "What
// each side does").
namespace ferry::rnic {
namespace {

// How long a stop may wait for peers to say of which kind they are, and until READ responses to
// unmodified peers are finished.
constexpr transport::Time kPrepareLimit = std::chrono::milliseconds(10);
constexpr transport::Time kFinishLimit = std::chrono::milliseconds(20);
constexpr int kPollMs = 1;
constexpr int kDrainPasses = 160;  // of 256 packets each: what a full socket buffer holds

bool waits_for_hello(QueuePair& qp) {
  const transport::QpState state = qp.transport().state();
  return !qp.is_datagram() &&
         (state == transport::QpState::kRtr || state == transport::QpState::kRts ||
          state == transport::QpState::kSqd) &&
         qp.transport().status().peer_class == transport::PeerClass::kUnknown;
}

}  // namespace

template <typename Done>
void Context::run_until(Done done, transport::Time limit) {
  const transport::Time end = engine_.now() + limit;
  for (;;) {
    std::array<pollfd, kLanes> sockets;
    nfds_t count = 0;
    {
      Engine::Lock lock(engine_);
      if (done()) return;  // before a pass of the engine, which may have much to do
      const transport::Time now = engine_.now();
      engine_.run(now);
      if (done() || now >= end) return;
      for (const Lane& lane : engine_.lanes()) {
        if (lane.port == nullptr || lane.users == 0) continue;
        if (lane.port->descriptor() < 0) return;  // simulated: time does not pass here
        sockets[count++] = {lane.port->descriptor(), POLLIN, 0};
      }
    }
    poll(sockets.data(), count, kPollMs);
  }
}

void Context::prepare() {
  if (!transport::kMovable || engine_.abandoned() || engine_.suspended()) return;
  {
    Engine::Lock lock(engine_);
    const transport::Time now = engine_.now();
    engine_.qps().for_each([&](QueuePair& qp) {
      if (!waits_for_hello(qp)) return;
      qp.transport().prepare(now);
      engine_.touch(&qp);
    });
    engine_.transmit(now);
  }
  run_until(
      [this] {
        bool waits = false;
        engine_.qps().for_each([&](QueuePair& qp) { waits |= waits_for_hello(qp); });
        return !waits;
      },
      kPrepareLimit);
  {
    Engine::Lock lock(engine_);
    engine_.suspension().begin_rest(engine_.now());
  }
  for (bool more = true; more;) {
    Engine::Lock lock(engine_);
    more = engine_.suspension().rest();
  }
}

// Receives what was sent to unreliable QPs before the stop and waits in a socket, with which it
// would be lost. This has no limit of time: on a busy machine much may wait, and this thread may
// wait for its turn.
void Context::drain() {
  for (int pass = 0; pass < kDrainPasses; ++pass) {
    Engine::Lock lock(engine_);
    bool unreliable = false;
    engine_.suspension().for_each_restless([&](const QueuePair& qp) {
      unreliable |= qp.init().type == IBV_QPT_UC || qp.init().type == IBV_QPT_UD;
    });
    if (!unreliable || engine_.run(engine_.now()).received == 0) return;
  }
}

int Context::quiesce(std::chrono::nanoseconds limit, std::uint32_t* unacked_psns) {
  if (!transport::kMovable) return EOPNOTSUPP;
  if (engine_.abandoned()) return ENODEV;
  if (engine_.suspended()) return EALREADY;
  run_until(
      [this] {
        bool finishing = false;
        engine_.suspension().for_each_restless(
            [&](QueuePair& qp) { finishing |= qp.transport().finishing(); });
        return !finishing;
      },
      std::min<transport::Time>(kFinishLimit, limit));
  drain();
  std::lock_guard objects(mutex_);
  Engine::Lock lock(engine_);
  const transport::Time now = engine_.now();
  for (const auto& [handle, cq] : cqs_) {
    if (cq->event_at() != transport::kNever) cq->raise_held();
  }
  *unacked_psns = 0;  // resting QPs have none
  if (engine_.suspension().resumes_resting()) engine_.suspension().wake_all();
  engine_.suspension().for_each_restless([&](QueuePair& qp) {
    qp.transport().stop(now);
    *unacked_psns += qp.transport().status().unacked_psns;
    engine_.touch(&qp);
  });
  engine_.transmit(now);  // PAUSE
  engine_.suspension().set_suspended(true);
  ++epoch_;
  return 0;
}

Slot Context::place_of(std::size_t lane) {
  Slot slot;
  slot.local = engine_.lanes()[lane].port->local();
  slot.slot = engine_.lanes()[lane].slot;
  if (const port::Address* gid = engine_.lanes().gid_of(lane)) {
    slot.origin = {*gid, port::udp_port_of_slot(origin_slot_)};
  }
  slot.epoch = epoch_;
  return slot;
}

void Context::places(std::vector<Slot>* out) {
  if (engine_.abandoned()) return;
  Engine::Lock lock(engine_);
  for (std::size_t i = 0; i < kLanes; ++i) {
    if (engine_.lanes()[i].port != nullptr) out->push_back(place_of(i));
  }
}

device::Parcel Context::place() {
  std::vector<Slot> slots;
  places(&slots);
  return to_parcel(slots);
}

void Context::sought(std::vector<port::Endpoint>* out) {
  if (engine_.abandoned()) return;
  Engine::Lock lock(engine_);
  engine_.seeker().take(out);
}

void Context::located(const port::Endpoint& name, const port::Endpoint& location,
                      std::uint32_t epoch) {
  if (engine_.abandoned()) return;
  Engine::Lock lock(engine_);
  if (engine_.suspended()) return;
  const transport::Time now = engine_.now();
  engine_.qps().for_each([&](QueuePair& qp) {
    engine_.touch(&qp);
    qp.transport().located(name, location, epoch, now);
  });
  engine_.transmit(now);
}

int Context::detach(std::vector<Slot>* out) {
  if (engine_.abandoned()) return ENODEV;
  if (!engine_.suspended()) return EINVAL;
  if (thread_ != nullptr) thread_->detach();
  Engine::Lock lock(engine_);
  for (std::size_t i = 0; i < kLanes; ++i) {
    Lane& lane = engine_.lanes()[i];
    if (lane.port == nullptr) continue;
    Slot slot = place_of(i);
    slot.entries = engine_.suspension().take_resting_entries(i);
    engine_.suspension().for_each_restless([&](QueuePair& qp) {
      if (!qp.serves(lane)) return;
      auto entry = qp.transport().stand_in_entry(slot.local.address);
      if (!entry.empty()) slot.entries.push_back(std::move(entry));
    });
    slot.descriptor = ports_->release(*lane.port);
    lane.port.reset();
    out->push_back(std::move(slot));
  }
  engine_.multicast().close();
  engine_.held_ports().let_go();
  return 0;
}

// Takes over all sockets or none: on failure they stay the caller's.
int Context::attach(const std::vector<Slot>& slots) {
  if (engine_.abandoned()) return ENODEV;
  if (!engine_.suspended()) return EINVAL;
  Engine::Lock lock(engine_);
  std::array<const Slot*, kLanes> by_lane{};
  for (const Slot& slot : slots) {
    const Slot*& entry = by_lane[lane_of(slot.local.address)];
    if (entry != nullptr || slot.slot > port::kMaxSlot) return EINVAL;
    entry = &slot;
  }
  for (std::size_t i = 0; i < kLanes; ++i) {
    // Without this lane a QP whose peer is of its family could not go on.
    if (by_lane[i] == nullptr && engine_.lanes()[i].users > 0) return EADDRNOTAVAIL;
  }
  std::array<std::unique_ptr<port::Port>, kLanes> ports;
  int error = slots.empty() ? EINVAL : 0;
  for (std::size_t i = 0; i < kLanes && error == 0; ++i) {
    if (by_lane[i] != nullptr) ports[i] = ports_->adopt(by_lane[i]->descriptor, &error);
    if (by_lane[i] != nullptr && ports[i] == nullptr && error == 0) error = EIO;
  }
  if (error == 0 && thread_ != nullptr) error = thread_->attach();
  if (error != 0) {
    for (auto& port : ports) {
      if (port != nullptr) ports_->release(*port);
    }
    return error;
  }
  for (std::size_t i = 0; i < kLanes; ++i) {
    engine_.lanes().set_port(i, std::move(ports[i]), by_lane[i] != nullptr ? by_lane[i]->slot : 0);
    if (by_lane[i] != nullptr) engine_.multicast().open(by_lane[i]->local.address);
  }
  return 0;
}

int Context::park(device::Parcel* out) {
  std::vector<Slot> slots;
  const int error = detach(&slots);
  if (error == 0) *out = to_parcel(slots);
  return error;
}

int Context::unpark(const device::Parcel& parcel) {
  std::vector<Slot> slots;
  return to_slots(parcel, &slots) ? attach(slots) : EINVAL;
}

void Context::resume(bool rollback) {
  if (engine_.abandoned() || !engine_.suspended()) return;
  Engine::Lock lock(engine_);
  const transport::Time now = engine_.now();
  engine_.suspension().set_suspended(false);
  if (rollback) ++epoch_;
  engine_.suspension().for_each_restless([&](QueuePair& qp) { qp.resume(rollback, now); });
  engine_.suspension().resume_resting(rollback, now);
  engine_.thread_sleep().sockets_changed();  // the progress thread sleeps without watching them
  engine_.transmit(now);
}

void Context::abandon() {
  engine_.abandon();
  if (thread_ != nullptr) thread_->abandon();
  // No lock is taken: a forked child has only this thread, and others may have held locks at the
  // fork.
  for (const Lane& lane : engine_.lanes()) {
    const auto& port = lane.port;
    if (port != nullptr && port->descriptor() >= 0) close(port->descriptor());
  }
  engine_.multicast().abandon();
  engine_.held_ports().abandon();
}

}  // namespace ferry::rnic
