#include "rnic/context.h"

#include <endian.h>
#include <poll.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

#include "rnic/attributes.h"

namespace ferry::rnic {
Context::Context(const Options& options)
    : sink_(*options.sink),
      ports_(options.ports),
      netdev_(options.netdev),
      guid_(options.netdev.guid),
      max_mtu_(payload_mtu(options.netdev.mtu)),
      engine_(
          *options.environment, options.settings,
          [ports = ports_](const port::Address& address, int* error) {
            return ports->bind(address, 0, error);
          },
          options.with_thread) {
  engine_.lanes().set_gids(netdev_.addresses);
  engine_.multicast().set_join(
      [ports = ports_](const port::Address& group, const port::Address& local, int* error) {
        return ports->join(group, local, error);
      });
  engine_.reception().forwarder().set_management(options.management);
  engine_.seeker().set_tell([moves = options.moves] {
    if (moves != nullptr) moves->seeks();
  });
}

// Binds the first slot that is free on every address: a QPN does not tell the address family.
int Context::bind() {
  if (netdev_.addresses.empty()) return EADDRNOTAVAIL;
  for (std::uint32_t slot = 0; slot <= port::kMaxSlot; ++slot) {
    int error = 0;
    std::vector<std::unique_ptr<port::Port>> bound;
    for (const port::Address& address : netdev_.addresses) {
      auto port = ports_->bind(address, slot, &error);
      if (port == nullptr) break;
      bound.push_back(std::move(port));
    }
    if (bound.size() == netdev_.addresses.size()) {
      for (std::size_t i = 0; i < bound.size(); ++i) {
        engine_.lanes().set_port(lane_of(netdev_.addresses[i]), std::move(bound[i]), slot);
      }
      origin_slot_ = slot;
      return 0;
    }
    if (error != EADDRINUSE) return error;
  }
  return EADDRINUSE;
}

std::unique_ptr<Context> Context::open(const Options& options, int* error) try {
  std::unique_ptr<Context> context(new Context(options));
  *error = context->bind();
  if (*error != 0) return nullptr;
  if (options.with_thread) {
    context->thread_ = std::make_unique<ProgressThread>(
        context->engine_, options.netdev.name, [&sink = context->sink_](bool up) {
          sink.asynchronous(up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, nullptr);
        });
    *error = context->thread_->start();
    if (*error != 0) return nullptr;
  }
  return context;
} catch (const std::bad_alloc&) {
  *error = ENOMEM;
  return nullptr;
}

Context::~Context() {
  thread_.reset();
  Engine::Lock lock(engine_);
  engine_.transmit(engine_.now());
  for (auto& [handle, qp] : qps_) {
    engine_.remove_qp(qp.get(), port::index_of(qp->qpn()));
    qp.reset();
  }
}

// Does not wait for the engine's lock: it may be held for good, even by this thread, if that exits
// in a signal handler.
void Context::leave() {
  if (engine_.abandoned()) return;
  Engine::Lock lock(engine_, std::try_to_lock);
  if (!lock.owned()) return;
  for (const auto& [handle, qp] : qps_) qp->say_farewell();
  engine_.transmit(engine_.now());
}

std::uint64_t Context::clock() const {
  return static_cast<std::uint64_t>(engine_.environment().now().count());
}

AttributeLimits Context::limits() const {
  AttributeLimits limits;
  limits.max_rd_atomic = QueuePair::kMaxRdAtomic;
  limits.max_mtu = mtu_code(max_mtu_);
  limits.gid_count = static_cast<int>(engine_.lanes().gids().size());
  return limits;
}

void Context::status(std::vector<device::QpStatus>* out) {
  if (engine_.abandoned()) return;
  Engine::Lock lock(engine_);
  engine_.qps().for_each([out](const QueuePair& qp) { out->push_back(qp.status()); });
}

bool Context::set_peer_retries(std::uint32_t qpn, const device::PeerRetries& peer) {
  if (engine_.abandoned()) return false;
  Engine::Lock lock(engine_);
  bool found = false;
  engine_.qps().for_each([&](QueuePair& qp) {
    if (qp.qpn() != qpn) return;
    qp.transport().set_peer_retries(
        {peer.timeout, peer.retry_count, peer.rnr_retry, peer.known != 0});
    found = true;
  });
  return found;
}

}  // namespace ferry::rnic
