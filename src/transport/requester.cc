#include "transport/connection_state.h"
#include "transport/timers.h"

// The requester: turns WQEs into request packets (IBTA vol. 1 clauses 9.7.2 to 9.7.4, 9.7.7),
// within the windows of PSNs, credits, responder resources and bytes. Local operations are carried
// out here, when they are the next to be sent.
namespace ferry::transport {
namespace {

using wire::Opcode;

// Packets of one message between two that ask for an acknowledgement.
constexpr unsigned kAckInterval = 16;

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
    out->header.ack_request = true;
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
    if (!wqe.has_response()) {
      const bool last_of_window =
          req.window - req.in_flight - cost < packet_cost() || left - cost < packet_cost();
      if (limited || last_of_window || req.since_ack_request + 1 >= kAckInterval) {
        out.header.ack_request = true;
      }
    }
    const EmitResult result = emit(out);
    if (result == EmitResult::kNoRoom) break;
    if (result != EmitResult::kOk) {
      wqe.local_error = Status::kLocalProtection;
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
    if (asks) req.probe.asked(packet.psn + packet.psns, now);
    if (req.next < req.max_sent) {
      ++counters.retransmitted_packets;
    } else if (asks && req.probe.timed_end == 0) {
      req.probe.time(packet.psn + 1, now);
    }
    req.next += packet.psns;
    req.max_sent = std::max(req.max_sent, req.next);
    if (wqe.has_response()) req.rd_atomics_in_flight.push(req.next);
    if (req.next == wqe.end_psn()) {
      ++req.cursor;
      skip_local();
    }
    if (packet.psn == req.una) {  // a new flight
      req.ack_at = deadline(now, ack_timeout(rts.timeout, rts.retry_count - req.retries_left));
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
