#include "transport/connection_state.h"
#include "transport/timers.h"

// The requester: turns WQEs into request packets (IBTA vol. 1 clauses 9.7.2 to 9.7.4, 9.7.7),
// within the windows of PSNs, credits, responder resources and bytes. Local operations are carried
// out here, when they are the next to be sent.
namespace ferry::transport {
namespace {

using wire::Opcode;

// Packets from one that asks for an acknowledgement to the next: at most, and at least where the
// window is small, of which no more than this part shall wait to be asked about.
constexpr unsigned kAckInterval = 64;
constexpr unsigned kShortestAckInterval = 4;
constexpr int kAcksOfWindow = 4;
constexpr int kFewCredits = 16;  // an acknowledgement may bring more

// A loss that a NAK reports leaves a window of so many packets, if there was one. Bad wires lose
// packets one by one: halved further, the window would be spent waiting for acknowledgements, and a
// loss more often its last packet, which nothing reports.
constexpr unsigned kFewestAfterNak = 8;

struct Opcodes {
  Opcode first, middle, last, only;
};

Opcodes opcodes_of(Operation operation) {
  const auto always = [](Opcode opcode) { return Opcodes{opcode, opcode, opcode, opcode}; };
  switch (operation) {
    case Operation::kSend:
      return {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLast,
              Opcode::kRcSendOnly};
    case Operation::kSendImm:
      return {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastImm,
              Opcode::kRcSendOnlyImm};
    case Operation::kSendInvalidate:
      return {Opcode::kRcSendFirst, Opcode::kRcSendMiddle, Opcode::kRcSendLastInvalidate,
              Opcode::kRcSendOnlyInvalidate};
    case Operation::kWrite:
      return {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLast,
              Opcode::kRcWriteOnly};
    case Operation::kWriteImm:
      return {Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle, Opcode::kRcWriteLastImm,
              Opcode::kRcWriteOnlyImm};
    case Operation::kCompareSwap: return always(Opcode::kRcCompareSwap);
    case Operation::kFetchAdd: return always(Opcode::kRcFetchAdd);
    case Operation::kAtomicWrite: return always(Opcode::kRcAtomicWrite);
    case Operation::kFlush: return always(Opcode::kRcFlush);
    case Operation::kRead:
    case Operation::kLocalInvalidate:  // sends nothing
    case Operation::kBindWindow: break;
  }
  return always(Opcode::kRcReadRequest);
}

}  // namespace

Connection::State::RequestPacket Connection::State::packet_at(std::uint64_t index,
                                                              std::uint64_t psn) const {
  const Wqe& wqe = req.queue.at(index);
  const std::uint32_t mtu = rtr.mtu;
  RequestPacket packet{.index = index, .psn = psn};
  packet.offset_psns = index == req.queue.assigned() ? 0 : psn - wqe.first_psn;
  packet.offset = packet.offset_psns * mtu;
  // A READ is asked for in requests that begin at fixed places, also when one is repeated from its
  // middle: the responder must see the same requests again, since a duplicate may not reach past
  // what it has already seen (clause 9.7.5.1.2).
  const std::uint64_t end = wqe.operation == Operation::kRead
                                ? (packet.offset / kReadRequestBytes + 1) * kReadRequestBytes
                                : packet.offset + mtu;
  packet.bytes = static_cast<std::uint32_t>(std::min(end, wqe.length) - packet.offset);
  packet.psns = std::max<std::uint32_t>((packet.bytes + mtu - 1) / mtu, 1);
  return packet;
}

// Clause 9.7.7.2.5: beyond the limit one request may be sent, of which only the first packet until
// that is acknowledged.
bool Connection::State::credits_allow(const Wqe& wqe, const RequestPacket& packet) const {
  if (req.unlimited || !wqe.needs_receive()) return true;
  const bool fresh = req.cursor == req.queue.assigned();
  const std::uint64_t ssn = fresh ? req.next_ssn : wqe.first_ssn;
  if (static_cast<std::int64_t>(ssn) <= req.limit_ssn) return true;
  if (packet.offset_psns == 0) return req.limited_psn < req.una || req.limited_psn >= req.next;
  return req.una > wqe.first_psn;
}

Connection::State::Sendable Connection::State::sendable(std::int64_t left) const {
  if (is_uc()) return uc_sendable() ? Sendable::kYes : Sendable::kNo;
  if (!requesting() || silent() || req.rnr_until != kNever) return Sendable::kNo;
  if (all_begun()) return Sendable::kNo;
  const Wqe& wqe = req.queue.at(req.cursor);
  if (wqe.local_error != Status::kSuccess) return Sendable::kNo;
  const bool fresh = req.cursor == req.queue.assigned();
  if (qp_state == QpState::kSqd && (fresh || wqe.first_psn >= req.max_sent)) return Sendable::kNo;
  if (fresh && wqe.fence && req.pending_rd_atomics > 0) return Sendable::kNo;  // clause 10.8.3.3
  if (wqe.is_local()) {
    // A key may be in use until all before has completed (clause 10.6.5.1).
    const bool waits =
        wqe.operation == Operation::kLocalInvalidate && req.cursor != req.queue.head();
    return waits ? Sendable::kNo : Sendable::kYes;
  }
  if (wqe.has_response() && req.rd_atomics_in_flight.count() >= rts.max_rd_atomic) {
    return Sendable::kNo;
  }
  const RequestPacket packet = next_packet();
  if (req.next + packet.psns - req.una > kPsnWindow) return Sendable::kNo;
  if (!credits_allow(wqe, packet)) return Sendable::kNo;
  if (req.in_flight == 0) return Sendable::kYes;  // one packet may always be under way
  if (req.in_flight + packet.cost() > req.window) return Sendable::kNo;
  return packet.cost() <= left ? Sendable::kYes : Sendable::kWindow;
}

void Connection::State::start_wqe() {
  req.queue.assign(req.next, req.next_ssn, rtr.mtu);
  const Wqe& wqe = req.queue.at(req.cursor);
  req.next_ssn += wqe.ssn_count;
  if (wqe.has_response()) ++req.pending_rd_atomics;
}

void Connection::State::carry_out(Wqe& wqe) {
  if (wqe.operation == Operation::kBindWindow) {
    wqe.local_error = host.bind_window(req.queue.operands(req.cursor).binding);
  } else if (!host.invalidate(wqe.invalidate_rkey, false)) {
    wqe.local_error = Status::kWindowBind;  // "memory management operation error"
  }
  skip_local();
  settle();
}

void Connection::State::skip_local() {
  while (req.cursor != req.queue.assigned()) {
    const Wqe& wqe = req.queue.at(req.cursor);
    if (!wqe.is_local() || wqe.local_error != Status::kSuccess) return;
    ++req.cursor;
  }
}

void Connection::State::build_request(const RequestPacket& packet, OutPacket* out) const {
  const Wqe& wqe = req.queue.at(packet.index);
  const bool first = packet.offset_psns == 0;
  const bool last = packet.psn + packet.psns == wqe.end_psn();
  const Opcodes opcodes = opcodes_of(wqe.operation);
  address(out->header,
          first ? (last ? opcodes.only : opcodes.first) : (last ? opcodes.last : opcodes.middle),
          static_cast<std::uint32_t>(packet.psn & wire::kPsnMask));
  out->header.xrc_srqn = wqe.remote_srqn;
  switch (wqe.operation) {
    case Operation::kRead:
      out->header.reth = {wqe.remote_address + packet.offset, wqe.rkey, packet.bytes};
      return;
    case Operation::kCompareSwap:
    case Operation::kFetchAdd: {
      const WqeOperands& operands = req.queue.operands(packet.index);
      const bool swap = wqe.operation == Operation::kCompareSwap;
      out->header.atomic = {wqe.remote_address, wqe.rkey,
                            swap ? operands.swap : operands.compare_add,
                            swap ? operands.compare_add : 0};
      return;
    }
    case Operation::kFlush: {
      const WqeOperands& operands = req.queue.operands(packet.index);
      out->header.feth = operands.flush;
      out->header.reth = {wqe.remote_address, wqe.rkey,
                          static_cast<std::uint32_t>(operands.flush_length)};
      return;
    }
    case Operation::kWrite:
    case Operation::kWriteImm:
    case Operation::kAtomicWrite:
      out->header.reth = {wqe.remote_address, wqe.rkey, static_cast<std::uint32_t>(wqe.length)};
      break;
    default: break;
  }
  if (last) {
    out->header.immediate = wqe.immediate;
    if (wqe.operation == Operation::kSendInvalidate) {
      out->header.invalidate_rkey = wqe.invalidate_rkey;
    }
    out->header.solicited = wqe.solicited && wqe.needs_receive();
  }
  out->length = packet.bytes;
  if (packet.bytes == 0) return;
  if (wqe.is_inline) {
    out->source = OutPacket::Source::kBytes;
    out->bytes = req.queue.inline_data(packet.index) + packet.offset;
  } else {
    out->source = OutPacket::Source::kSges;
    out->sges = req.queue.sges(packet.index);
    out->offset = packet.offset;
  }
}

// Whether the peer need not acknowledge this message by itself, though it ends here. Nobody waits for
// it: it has no completion, and there is room for more. It is acknowledged with the next request that
// asks, which is one of the next kAckInterval packets. Where none follows for as long as a probe
// waits, the probe asks; the first that follows shortly before that asks instead.
bool Connection::State::may_be_quiet(const Wqe& wqe, Time now) const {
  if (wqe.signaled || req.next < req.max_sent || req.probe.delay == kNever) return false;
  if (req.probe.is_late(now)) return false;
  if (4 * (req.cursor + 1 - req.queue.head()) > req.queue.max_wr()) return false;
  if (wqe.needs_receive() && !req.unlimited &&
      req.limit_ssn - static_cast<std::int64_t>(wqe.first_ssn) < kFewCredits) {
    return false;
  }
  const bool newest = req.cursor + 1 == req.queue.tail();
  return qp_state == QpState::kRts && (newest || !req.queue.at(req.cursor + 1).is_local());
}

// `left`: of the window, behind the next packet.
bool Connection::State::interval_ends(std::int64_t left) const {
  if (left < packet_cost()) return true;
  const unsigned packets = req.since_ack_request + 1;
  return packets >= kAckInterval ||
         (packets >= kShortestAckInterval &&
          kAcksOfWindow * packets * packet_cost() > left + req.in_flight);
}

Time Connection::State::ack_deadline(Time now) const {
  return deadline(now, ack_timeout(rts.timeout, rts.retry_count - req.retries_left));
}

// Something waits for the acknowledgement of what the peer was not asked to acknowledge.
void Connection::State::ask_now() {
  if (is_unasked()) req.probe.due = true;
}

bool Connection::State::is_unasked() const {
  return req.probe.delay != kNever && std::max(req.una, req.probe.asked_end) < req.next;
}

// Whether only an acknowledgement that nobody asked for lets the next packet go: there is no room,
// or no credit. Behind a READ or an atomic its response does.
bool Connection::State::is_starved() const {
  if (!is_unasked() || all_begun() || !requesting() || silent() || req.rnr_until != kNever) {
    return false;
  }
  const Wqe& wqe = req.queue.at(req.cursor);
  if (req.queue.at(req.queue.head()).has_response() || wqe.is_local()) return false;
  const RequestPacket packet = next_packet();
  return packet.cost() > std::min(req.window - req.in_flight, room()) ||
         !credits_allow(wqe, packet) || req.next + packet.psns - req.una > kPsnWindow;
}

bool Connection::State::is_waited_for() const {
  for (std::uint64_t i = req.queue.head(); i != req.queue.tail(); ++i) {
    if (i >= req.queue.assigned() || req.queue.at(i).signaled) return true;
    if (req.queue.at(i).end_psn() > req.max_sent) return true;
  }
  return false;
}

unsigned Connection::State::transmit_requests(Time now, unsigned budget) {
  if (all_begun()) return 0;
  std::int64_t left = room();
  unsigned sent = 0;
  while (sent < budget && sendable(left) == Sendable::kYes) {
    if (req.cursor == req.queue.assigned()) start_wqe();
    Wqe& wqe = req.queue.at(req.cursor);
    if (wqe.is_local()) {
      carry_out(wqe);
      ++sent;
      continue;
    }
    const RequestPacket packet = next_packet();
    OutPacket out;
    build_request(packet, &out);

    const std::int64_t cost = packet.cost();
    const bool limited = wqe.needs_receive() && !req.unlimited && packet.offset_psns == 0 &&
                         static_cast<std::int64_t>(wqe.first_ssn) > req.limit_ssn;
    const bool ends = packet.psn + packet.psns == wqe.end_psn();
    if (!wqe.has_response()) {
      out.header.ack_request = limited ||
                               interval_ends(std::min(req.window - req.in_flight, left) - cost) ||
                               (ends && !may_be_quiet(wqe, now));
    }
    const EmitResult result = emit(out);
    if (result == EmitResult::kNoRoom) break;
    if (result != EmitResult::kOk) {
      wqe.local_error = Status::kLocalProtection;
      ask_now();
      settle();
      break;
    }
    ++sent;
    left -= cost;
    req.in_flight += cost;
    host.account(peer, cost);
    req.since_ack_request = out.header.ack_request ? 0 : req.since_ack_request + 1;
    if (limited) req.limited_psn = req.next;
    const bool asks = out.header.ack_request || wqe.has_response();
    if (asks) {
      req.probe.asked(packet.psn + packet.psns, now);
      if (req.ack_at == kNever) req.ack_at = ack_deadline(now);
    } else if (ends) {
      req.probe.left_quiet(wqe.end_psn(), now, ack_timeout(rts.timeout));
    }
    if (req.next < req.max_sent) {
      ++counters.retransmitted_packets;
    } else if (asks && req.probe.timed_end == 0) {
      req.probe.time(packet.psn + 1, now);
    }
    req.next += packet.psns;
    req.max_sent = std::max(req.max_sent, req.next);
    if (wqe.has_response()) req.rd_atomics_in_flight.push(req.next);
    if (ends) {
      ++req.cursor;
      skip_local();
    }
  }
  return sent;
}

std::int64_t Connection::State::cost(const Wqe& wqe, std::uint64_t begin, std::uint64_t end) const {
  if (begin >= end) return 0;
  const std::uint64_t from = std::min((begin - wqe.first_psn) * rtr.mtu, wqe.length);
  const std::uint64_t to = std::min((end - wqe.first_psn) * rtr.mtu, wqe.length);
  return static_cast<std::int64_t>(to - from + kPacketOverhead * (end - begin));
}

void Connection::State::go_back() {
  if (req.in_flight != 0) host.account(peer, -req.in_flight);
  req.in_flight = 0;
  req.next = req.una;
  req.cursor = req.queue.head();
  skip_local();
  req.rd_atomics_in_flight.clear();
  req.implied_nak_at = req.una;
  req.since_ack_request = 0;
  req.ack_at = kNever;
  req.probe.cancel();
}

// Additive increase, multiplicative decrease: losses are those of a receive buffer that overflowed,
// and go-back-N into the same overflow would never end. A timeout starts again from two packets. A
// further loss of the same flight leaves the threshold alone (RFC 5681, section 3.1): halved from
// the two packets of the first timeout, it would take the flow minutes to grow again.
void Connection::State::loss(bool timeout) {
  const bool same_flight = req.una < req.recover;
  if (same_flight && !timeout) return;
  req.recover = req.max_sent;
  if (!same_flight) {
    req.threshold =
        std::max(std::min(req.in_flight, req.window) / 2, kFewestAfterNak * packet_cost());
  }
  req.window = timeout ? 2 * packet_cost() : std::min(req.window, req.threshold);
}

void Connection::State::requester_timeout(Time now) {
  if (req.rnr_until <= now) req.rnr_until = kNever;
  if (req.ack_at > now) {
    probe_timeout(now);
    return;
  }
  ++counters.timeouts;
  if (req.retries_left == 0) {
    fail(req.queue.head(), Status::kRetryExceeded);
    return;
  }
  --req.retries_left;
  count_unanswered();
  loss(true);
  go_back();
}

void Connection::State::settle() {
  while (req.queue.head() != req.queue.assigned()) {
    const Wqe& wqe = req.queue.at(req.queue.head());
    if (wqe.local_error != Status::kSuccess) {
      is_uc() ? stop_sends(wqe.local_error) : fail(req.queue.head(), wqe.local_error);
      return;
    }
    if (!wqe.is_local()) return;
    complete_oldest();
  }
}

// Clause 10.3.1.4: drained when all that was begun is acknowledged.
void Connection::State::check_drained() {
  if (qp_state != QpState::kSqd || req.drained_raised || req.una != req.max_sent) return;
  if (req.queue.head() != req.queue.assigned() &&
      req.queue.at(req.queue.head()).first_psn < req.max_sent) {
    return;
  }
  req.drained_raised = true;
  host.raise(Host::Event::kSqDrained);
}

}  // namespace ferry::transport
