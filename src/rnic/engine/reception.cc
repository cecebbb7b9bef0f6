#include "rnic/engine/reception.h"

#include "rnic/engine/qp/queue_pair.h"
#include "wire/envelope.h"
#include "wire/icrc.h"

namespace ferry::rnic {
namespace {

constexpr unsigned kBatchesPerPass = 4;

}  // namespace

inline bool Reception::verify(const port::Received& received, const port::Port& port) {
  const bool valid =
      wire::verify(received.bytes, received.from, port.local(), received.ip_identification);
  if (!valid) ++drops_.bad_icrc;
  return valid;
}

void Reception::handle(Lane& lane, port::Port& port, const port::Received& received,
                       transport::Time now) {
  if (!verify(received, port)) return;
  const auto packet = wire::parse(received.bytes);
  if (!packet) {
    ++drops_.malformed;
    return;
  }
  if (QueuePair* qp = find(lane, packet->header.dest_qpn)) {
    suspension_.touch(qp);
    qp->handle_packet(*packet, received.from, now);
  } else {
    handle_other(lane, port, received, *packet, now);
  }
}

inline QueuePair* Reception::find(const Lane& lane, std::uint32_t qpn) const {
  QueuePair* qp = port::slot_of(qpn) == lane.slot ? qps_[port::index_of(qpn)] : nullptr;
  return qp != nullptr && qp->serves(lane) ? qp : nullptr;
}

// Handles a packet for QP 1, for another slot, or one that was passed on to this slot. Who passes
// on and who opens envelopes depends on the port: the RNIC of slot 0 opens none, and an RNIC of
// another slot passes on only what came to the port 4791 that it holds besides its own.
void Reception::handle_other(Lane& lane, port::Port& port, const port::Received& received,
                             const wire::Packet& packet, transport::Time now) {
  if (forwarder_.take(port, received, packet)) return;
  const auto passed = wire::open_envelope(packet, received.from, port.local());
  QueuePair* qp = passed ? find(lane, passed->packet.header.dest_qpn) : nullptr;
  if (qp == nullptr) {
    ++drops_.unknown_qp;
    return;
  }
  suspension_.touch(qp);
  qp->handle_packet(passed->packet, passed->from, now);
}

void Reception::handle_multicast(const MulticastGroups::Group& group,
                                 const port::Received& received, transport::Time now) {
  constexpr std::uint32_t kMulticastQpn = 0xFFFFFF;
  if (!verify(received, *group.port)) return;
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
    suspension_.touch(qp);
  }
}

std::size_t Reception::receive(transport::Time now, bool all, bool* more) {
  std::size_t total = 0;
  for (Lane& lane : lanes_) {
    if (!lane.listens() || (lane.users == 0 && !all)) continue;
    for (unsigned batch = 0; batch < kBatchesPerPass; ++batch) {
      const std::size_t count = lane.port->receive(batch_);
      for (std::size_t i = 0; i < count; ++i) handle(lane, *lane.port, batch_[i], now);
      total += count;
      if (count < batch_.size()) break;
      if (batch + 1 == kBatchesPerPass) *more = true;
    }
    if (forwarder_.has_work()) forwarder_.flush(*lane.port);
  }
  if (!held_ports_.ports().empty()) total += receive_held(now, more);
  if (!multicast_.groups().empty()) total += receive_multicast(now, more);
  return total;
}

std::size_t Reception::receive_held(transport::Time now, bool* more) {
  std::size_t total = 0;
  for (const auto& [address, port] : held_ports_.ports()) {
    const std::size_t count = port->receive(batch_);
    for (std::size_t i = 0; i < count; ++i) {
      handle(lanes_[lane_of(address)], *port, batch_[i], now);
    }
    total += count;
    if (count == batch_.size()) *more = true;
    if (forwarder_.has_work()) forwarder_.flush(*port);
  }
  return total;
}

std::size_t Reception::receive_multicast(transport::Time now, bool* more) {
  std::size_t total = 0;
  for (const auto& group : multicast_.groups()) {
    if (group->port == nullptr) continue;
    const std::size_t count = group->port->receive(batch_);
    for (std::size_t i = 0; i < count; ++i) handle_multicast(*group, batch_[i], now);
    total += count;
    if (count == batch_.size()) *more = true;
  }
  return total;
}

}  // namespace ferry::rnic
