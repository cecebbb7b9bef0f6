#include "port/sim_link.h"

#include <algorithm>

namespace ferry::port {

namespace internal {

struct SimSocket {
  SimSocket(SimNetwork* on, const Endpoint& at, std::size_t buffer)
      : network(on), endpoint(at), buffer_bytes(buffer) {
    network->sockets_[endpoint] = this;
  }
  ~SimSocket() { network->sockets_.erase(endpoint); }

  SimNetwork* network;
  Endpoint endpoint;
  std::size_t buffer_bytes;
  std::size_t used_bytes = 0;
  std::deque<SimNetwork::Flight> waiting;
};

}  // namespace internal

const char* name_of(SimVerdict verdict) {
  switch (verdict) {
    case SimVerdict::kSent: return "sent";
    case SimVerdict::kReordered: return "reordered";
    case SimVerdict::kDuplicated: return "duplicated";
    case SimVerdict::kLost: return "lost";
    case SimVerdict::kFiltered: return "filtered";
    case SimVerdict::kDelivered: return "delivered";
    case SimVerdict::kUnreachable: return "unreachable";
    case SimVerdict::kOverflow: return "overflow";
  }
  return "?";
}

SimNetwork::SimNetwork(std::uint64_t seed) : random_(seed) {}
SimNetwork::~SimNetwork() = default;

std::unique_ptr<SimPort> SimNetwork::attach(const Endpoint& endpoint) {
  if (sockets_.contains(endpoint)) return nullptr;
  auto socket = std::make_shared<internal::SimSocket>(this, endpoint, receive_buffer_);
  return std::unique_ptr<SimPort>(new SimPort(this, std::move(socket)));
}

std::unique_ptr<SimPort> SimNetwork::adopt(SimHandle handle) {
  if (!handle) return nullptr;
  return std::unique_ptr<SimPort>(new SimPort(this, std::move(handle.socket_)));
}

SimTime SimNetwork::next_event_time() const {
  return under_way_.empty() ? kSimNever : under_way_.begin()->first.first;
}

void SimNetwork::advance_to(SimTime time) {
  while (!under_way_.empty() && under_way_.begin()->first.first <= time) {
    auto first = under_way_.extract(under_way_.begin());
    now_ = std::max(now_, first.key().first);
    Flight& flight = first.mapped();
    const auto found = sockets_.find(flight.to);
    if (found == sockets_.end()) {
      trace(flight, SimVerdict::kUnreachable);
      continue;
    }
    internal::SimSocket& socket = *found->second;
    const std::size_t charge = window_charge(flight.bytes.size());
    if (socket.used_bytes + charge > socket.buffer_bytes) {
      trace(flight, SimVerdict::kOverflow);
      continue;
    }
    trace(flight, SimVerdict::kDelivered);
    socket.used_bytes += charge;
    socket.waiting.push_back(std::move(flight));
  }
  if (time != kSimNever) now_ = std::max(now_, time);
}

void SimNetwork::trace(const Flight& flight, SimVerdict verdict) const {
  if (trace_) trace_(now_, flight.from, flight.to, flight.bytes, verdict);
}

void SimNetwork::send(const Endpoint& from, const Endpoint& to, std::vector<std::byte> bytes,
                      std::uint16_t ip_identification) {
  Flight flight{from, to, std::move(bytes), ip_identification};
  if (filter_ && !filter_(from, to, flight.bytes)) {
    trace(flight, SimVerdict::kFiltered);
    return;
  }
  if (random_.chance(conditions_.loss)) {
    trace(flight, SimVerdict::kLost);
    return;
  }
  const bool reordered = random_.chance(conditions_.reordering);
  const bool duplicated = random_.chance(conditions_.duplication);
  trace(flight, reordered ? SimVerdict::kReordered : SimVerdict::kSent);
  if (duplicated) {
    trace(flight, SimVerdict::kDuplicated);
    launch(flight, reordered);
    launch(std::move(flight), true);
  } else {
    launch(std::move(flight), reordered);
  }
}

void SimNetwork::launch(Flight flight, bool reordered) {
  auto uniform = [&](SimTime low, SimTime high) {
    return SimTime(random_.between(static_cast<std::uint64_t>(low.count()),
                                   static_cast<std::uint64_t>(std::max(low, high).count())));
  };
  SimTime arrival = now_ + uniform(conditions_.min_delay, conditions_.max_delay);
  if (reordered) {
    arrival += uniform(SimTime(0), conditions_.reorder_delay);
  } else {
    SimTime& last = last_arrival_[{flight.from, flight.to}];
    arrival = last = std::max(last, arrival);
  }
  under_way_.emplace(std::pair(arrival, flights_++), std::move(flight));
}

SimPort::SimPort(SimNetwork* network, std::shared_ptr<internal::SimSocket> socket)
    : network_(network),
      socket_(std::move(socket)),
      local_(socket_->endpoint),
      window_(socket_->buffer_bytes) {}

SimPort::~SimPort() = default;

SimHandle SimPort::detach() {
  flush();
  queued_.clear();
  SimHandle handle;
  handle.socket_ = std::move(socket_);
  return handle;
}

// Identifications are those of a socket: the index in a run of packets of one length to one
// endpoint.
std::span<std::byte> SimPort::reserve(const Endpoint& to, std::size_t length,
                                      std::uint16_t* ip_identification) {
  if (!socket_ || length == 0 || length > kMaxPacket) return {};
  if (queued_.size() == kMaxQueued && !flush()) return {};
  if (full_ && queued_.empty()) return {};
  std::uint16_t identification = 0;
  if (!queued_.empty()) {
    const Queued& last = queued_.back();
    if (last.to == to && last.bytes.size() == length && last.ip_identification < 63) {
      identification = static_cast<std::uint16_t>(last.ip_identification + 1);
    }
  }
  *ip_identification = identification;
  queued_.push_back({to, std::vector<std::byte>(length), identification});
  return queued_.back().bytes;
}

void SimPort::unreserve() {
  if (!queued_.empty()) queued_.pop_back();
}

bool SimPort::flush() {
  if (full_ && !queued_.empty()) return false;
  if (socket_) {
    for (Queued& packet : queued_) {
      network_->send(local_, packet.to, std::move(packet.bytes), packet.ip_identification);
    }
  }
  queued_.clear();
  return true;
}

std::size_t SimPort::receive(std::span<Received> out) {
  handed_out_.clear();
  if (!socket_) return 0;
  std::size_t n = 0;
  for (; n < out.size() && !socket_->waiting.empty(); ++n) {
    SimNetwork::Flight& flight = socket_->waiting.front();
    socket_->used_bytes -= window_charge(flight.bytes.size());
    // As with a socket, `ip_identification` is only likely: one of eight is wrong.
    const bool wrong = network_->random_.between(0, 7) == 0;
    out[n].from = flight.from;
    out[n].ip_identification = wrong ? std::uint16_t{0} : flight.ip_identification;
    handed_out_.push_back(std::move(flight.bytes));
    out[n].bytes = handed_out_.back();
    socket_->waiting.pop_front();
  }
  return n;
}

}  // namespace ferry::port
