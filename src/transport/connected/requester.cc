#include "transport/connected/requester.h"

#include <algorithm>

#include "transport/timers.h"

namespace ferry::transport {
namespace {

// The number of packets from one that asks for an acknowledgement to the next is at most
// kAckInterval. In a small window it is less, so that at most 1 / kAcksOfWindow of the window waits
// for the next that asks, but at least kShortestAckInterval.
constexpr unsigned kAckInterval = 64;
constexpr unsigned kShortestAckInterval = 4;
constexpr int kAcksOfWindow = 4;
constexpr int kFewCredits = 16;  // with fewer left each message asks: the ACK may bring more

}  // namespace

// Clause 9.7.7.2.5: one request may be sent beyond the limit, but only its first packet until that
// is acknowledged.
bool Requester::credits_allow(const Wqe& wqe, const RequestPacket& packet) const {
  if (flight_.credits.unlimited || !wqe.needs_receive()) return true;
  if (flight_.credits.cover(flight_.at_fresh_wqe() ? flight_.next_ssn : wqe.first_ssn)) return true;
  const std::uint64_t limited_psn = flight_.credits.limited_psn;
  if (packet.offset_psns == 0) return limited_psn < flight_.una || limited_psn >= flight_.next;
  return flight_.una > wqe.first_psn;
}

Requester::Sendable Requester::sendable(std::int64_t left) const {
  const Flight& flight = flight_;  // read once: this is called for each packet
  const QpAttributes& qp = flight.qp;
  if (!qp.requesting() || qp.silent() || flight.rnr_until != kNever) return Sendable::kNo;
  if (flight.all_begun()) return Sendable::kNo;
  const Wqe& wqe = flight.queue.at(flight.cursor);
  if (wqe.local_error != Status::kSuccess) return Sendable::kNo;
  const bool fresh = flight.at_fresh_wqe();
  if (qp.qp_state == QpState::kSqd && (fresh || wqe.first_psn >= flight.max_sent))
    return Sendable::kNo;
  if (fresh && wqe.fence && flight.pending_rd_atomics > 0) return Sendable::kNo;  // clause 10.8.3.3
  if (wqe.is_local()) {
    // A key may be in use until everything before has completed (clause 10.6.5.1).
    const bool waits =
        wqe.operation == Operation::kLocalInvalidate && flight.cursor != flight.queue.head();
    return waits ? Sendable::kNo : Sendable::kYes;
  }
  if (wqe.has_response() && flight.rd_atomics.count() >= qp.rts.max_rd_atomic) {
    return Sendable::kNo;
  }
  const RequestPacket packet = flight.next_packet();
  if (flight.next + packet.psns - flight.una > kPsnWindow) return Sendable::kNo;
  if (!credits_allow(wqe, packet)) return Sendable::kNo;
  if (flight.in_flight == 0) return Sendable::kYes;  // one packet may always be under way
  if (flight.in_flight + packet.cost() > flight.window) return Sendable::kNo;
  return packet.cost() <= left ? Sendable::kYes : Sendable::kWindow;
}

// Whether the last packet of this message need not ask for an acknowledgement, since nobody waits
// for it: the message has no completion, and there is room for more. It is acknowledged with the
// next packet that asks, one of the next kAckInterval. If none follows before the probe's time, the
// probe asks; a message that ends shortly before that time asks instead.
bool Requester::may_be_quiet(const Wqe& wqe, Time now) const {
  if (wqe.signaled || flight_.next < flight_.max_sent || flight_.probe.delay == kNever)
    return false;
  if (flight_.probe.is_late(now)) return false;
  if (4 * (flight_.cursor + 1 - flight_.queue.head()) > flight_.queue.max_wr()) return false;
  if (wqe.needs_receive() && !flight_.credits.unlimited &&
      flight_.credits.limit_ssn - static_cast<std::int64_t>(wqe.first_ssn) < kFewCredits) {
    return false;
  }
  const bool newest = flight_.cursor + 1 == flight_.queue.tail();
  return flight_.qp.qp_state == QpState::kRts &&
         (newest || !flight_.queue.at(flight_.cursor + 1).is_local());
}

// `left`: bytes of the window that remain after the next packet.
bool Requester::interval_ends(std::int64_t left) const {
  if (left < flight_.qp.packet_cost()) return true;
  const unsigned packets = flight_.since_ack_request + 1;
  return packets >= kAckInterval ||
         (packets >= kShortestAckInterval &&
          kAcksOfWindow * packets * flight_.qp.packet_cost() > left + flight_.in_flight);
}

bool Requester::lacks_room() const {
  if (flight_.all_begun() || !flight_.qp.requesting() || flight_.qp.silent() ||
      flight_.rnr_until != kNever) {
    return false;
  }
  const Wqe& wqe = flight_.queue.at(flight_.cursor);
  if (flight_.queue.at(flight_.queue.head()).has_response() || wqe.is_local()) return false;
  const RequestPacket packet = flight_.next_packet();
  return packet.cost() > std::min(flight_.window - flight_.in_flight, flight_.qp.path.window()) ||
         !credits_allow(wqe, packet) || flight_.next + packet.psns - flight_.una > kPsnWindow;
}

unsigned Requester::transmit_requests(Time now, unsigned budget) {
  std::int64_t left = flight_.qp.path.window();
  unsigned sent = 0;
  while (sent < budget && sendable(left) == Sendable::kYes) {
    if (flight_.at_fresh_wqe()) flight_.start_wqe();
    Wqe& wqe = flight_.queue.at(flight_.cursor);
    if (wqe.is_local()) {
      flight_.carry_out(wqe);
      errors_.settle();
      ++sent;
      continue;
    }
    const RequestPacket packet = flight_.next_packet();
    OutPacket out;
    flight_.build_request(packet, &out);

    const std::int64_t cost = packet.cost();
    const bool limited =
        wqe.needs_receive() && packet.offset_psns == 0 && !flight_.credits.cover(wqe.first_ssn);
    const bool ends = packet.psn + packet.psns == wqe.end_psn();
    if (!wqe.has_response()) {
      out.header.ack_request =
          limited || interval_ends(std::min(flight_.window - flight_.in_flight, left) - cost) ||
          (ends && !may_be_quiet(wqe, now));
    }
    const EmitResult result = flight_.qp.path.emit(out);
    if (result == EmitResult::kNoRoom) break;
    if (result != EmitResult::kOk) {
      wqe.local_error = Status::kLocalProtection;
      flight_.ask_now();
      errors_.settle();
      break;
    }
    ++sent;
    left -= cost;
    flight_.depart(cost);
    flight_.since_ack_request = out.header.ack_request ? 0 : flight_.since_ack_request + 1;
    if (limited) flight_.credits.limited_psn = flight_.next;
    const bool asks = out.header.ack_request || wqe.has_response();
    if (asks) {
      flight_.probe.asked(packet.psn + packet.psns, now);
      if (flight_.ack_at == kNever) flight_.ack_at = flight_.ack_deadline(now);
    } else if (ends) {
      flight_.probe.left_quiet(wqe.end_psn(), now, ack_timeout(flight_.qp.rts.timeout));
    }
    if (flight_.next < flight_.max_sent) {
      ++flight_.qp.path.counters.retransmitted_packets;
    } else if (asks && flight_.probe.timed_end == 0) {
      flight_.probe.time(packet.psn + 1, now);
    }
    flight_.next += packet.psns;
    flight_.max_sent = std::max(flight_.max_sent, flight_.next);
    if (wqe.has_response()) flight_.rd_atomics.push(flight_.next);
    if (ends) {
      ++flight_.cursor;
      flight_.skip_local();
    }
  }
  return sent;
}

void Requester::timeout(Time now) {
  if (flight_.rnr_until <= now) flight_.rnr_until = kNever;
  if (flight_.ack_at > now) {
    probe_timeout(now);
    return;
  }
  ++flight_.qp.path.counters.timeouts;
  if (flight_.retries_left == 0) {
    errors_.fail(flight_.queue.head(), Status::kRetryExceeded);
    return;
  }
  --flight_.retries_left;
  flight_.qp.count_unanswered();
  flight_.loss(true);
  flight_.go_back();
}

// A probe is the oldest packet that is not acknowledged, sent once more. To the responder it is a
// packet that was lost, or a duplicate; either way the answer says how far the responder has come.
// If that is not up to the last packet and the window was full, new packets follow, and the
// responder reports the gap before them. If nothing follows, the probe's timer runs out again, and
// everything is sent again from there; it costs no retry, since the peer has answered.
void Requester::probe_timeout(Time now) {
  TailProbe& probe = flight_.probe;
  if (probe.at > now) return;
  probe.at = kNever;
  if (probe.answered) {
    flight_.loss(false);
    flight_.go_back();
    return;
  }
  if (probe.sent >= TailProbe::kMost) return;
  probe.due = true;
}

// Asks for the acknowledgement of packets under way of which none asks. Most likely all have
// arrived; the program may know that and have freed the memory that they came from, so none can be
// sent again. An empty SEND at the last acknowledged PSN is a duplicate: the responder does not
// look into it, and acknowledges it with everything that has come since (clause 9.7.5.1.2, C9-105).
// Packets that it does not acknowledge get a probe then.
bool Requester::transmit_query(Time now) {
  TailProbe& probe = flight_.probe;
  OutPacket out;
  flight_.qp.path.address(out.header, wire::Opcode::kRcSendOnly,
                          static_cast<std::uint32_t>((flight_.una - 1) & wire::kPsnMask));
  out.header.xrc_srqn = flight_.queue.at(flight_.queue.head()).remote_srqn;
  out.header.ack_request = true;
  if (flight_.qp.path.emit(out) == EmitResult::kNoRoom) return false;
  probe.due = false;
  probe.quiet = false;
  probe.next = probe.asked_end = flight_.next;
  probe.at = now + probe.delay;
  flight_.ack_at = flight_.ack_deadline(now);
  return true;
}

bool Requester::transmit_probe(Time now) {
  TailProbe& probe = flight_.probe;
  if (probe.asked_end <= flight_.una) return transmit_query(now);
  const std::uint64_t index = flight_.queue.head();
  Wqe& wqe = flight_.queue.at(index);
  OutPacket out;
  flight_.build_request(flight_.packet_at(index, flight_.una), &out);
  if (!wqe.has_response()) out.header.ack_request = true;
  const EmitResult result = flight_.qp.path.emit(out);
  if (result == EmitResult::kNoRoom) return false;
  probe.due = false;
  if (result != EmitResult::kOk) {
    wqe.local_error = Status::kLocalProtection;
    errors_.settle();
    return false;
  }
  ++flight_.qp.path.counters.retransmitted_packets;
  ++probe.sent;
  probe.next = flight_.next;
  probe.quiet = false;
  probe.asked_end = flight_.next;
  probe.at = deadline(now, 2 * probe.delay);
  if (flight_.ack_at == kNever) flight_.ack_at = flight_.ack_deadline(now);
  return true;
}

}  // namespace ferry::transport
