#include <optional>
#include <span>

#include "transport/connection_state.h"
#include "transport/credits.h"
#include "transport/timers.h"

// The completer: acknowledgements and responses in, completions of the send queue out (IBTA
// vol. 1 clauses 9.7.5.2, 9.7.7).
namespace ferry::transport {
namespace {

namespace syndrome = wire::syndrome;

std::optional<Status> status_of_nak(std::uint8_t code) {
  switch (code) {
    case syndrome::kNakInvalidRequest: return Status::kRemoteInvalidRequest;
    case syndrome::kNakRemoteAccess: return Status::kRemoteAccess;
    case syndrome::kNakRemoteOperational: return Status::kRemoteOperation;
    default: return std::nullopt;
  }
}

}  // namespace

void Connection::State::release(const Wqe& wqe, std::uint64_t end) {
  const std::int64_t bytes = cost(wqe, req.una, std::min(end, req.next));
  if (bytes != 0) {
    req.in_flight -= bytes;
    host.account(peer, -bytes);
    const std::int64_t growth =
        req.window < req.threshold ? bytes : packet_cost() * bytes / req.window;
    req.window = std::min(req.window + growth, kMaxWindow);
  }
  req.una = end;
  if (req.next >= end) return;
  req.next = end;  // acknowledged before it was sent again
  req.cursor = end == wqe.end_psn() ? req.queue.head() + 1 : req.queue.head();
  skip_local();
}

void Connection::State::complete_oldest() {
  const Wqe& wqe = req.queue.at(req.queue.head());
  req.completed_ssn = static_cast<std::int64_t>(wqe.first_ssn + wqe.ssn_count - 1);
  if (wqe.has_response()) --req.pending_rd_atomics;
  if (wqe.signaled) {
    const bool brings_data = wqe.operation == Operation::kRead || wqe.is_atomic();
    host.complete_send({.wr_id = wqe.wr_id,
                        .status = Status::kSuccess,
                        .operation = wqe.operation,
                        .bytes = brings_data ? static_cast<std::uint32_t>(wqe.length) : 0});
  }
  req.queue.pop();
}

void Connection::State::complete_head() {
  complete_oldest();
  settle();
}

bool Connection::State::acknowledge(std::uint64_t end) {
  while (req.una < end && requesting()) {
    const Wqe& wqe = req.queue.at(req.queue.head());
    if (wqe.has_response()) return false;
    release(wqe, std::min(end, wqe.end_psn()));
    if (req.una == wqe.end_psn()) complete_head();
  }
  return true;
}

void Connection::State::progress(Time now) {
  req.retries_left = rts.retry_count;
  req.rnr_retries_left = rts.rnr_retry;
  req.ack_at = req.una < req.probe.asked_end ? ack_deadline(now) : kNever;
  probe_progress(now);
  check_drained();
}

// MSN and SSN count the same requests (clause 9.7.7.2): the limit is MSN + credits. It never falls,
// since credits cannot be taken back.
void Connection::State::update_credits(const wire::Aeth& aeth) {
  if ((aeth.syndrome & syndrome::kKindMask) != syndrome::kAck) return;
  const std::uint8_t code = aeth.syndrome & syndrome::kValueMask;
  if (code == syndrome::kNoCredits) {
    req.unlimited = true;
    return;
  }
  const std::int64_t msn =
      req.completed_ssn +
      wire::psn_diff(aeth.msn, static_cast<std::uint32_t>(req.completed_ssn & wire::kPsnMask));
  if (msn >= static_cast<std::int64_t>(req.next_ssn)) return;
  req.unlimited = false;
  req.limit_ssn = std::max(req.limit_ssn, msn + credits_of(code));
}

// Clause 9.7.5.2.2: an acknowledgement of something later than an unanswered READ or atomic means
// that its response was lost.
void Connection::State::lost_response() {
  if (!requesting() || req.implied_nak_at == req.una) return;
  loss(false);
  go_back();
}

void Connection::State::handle_ack(const wire::Packet& packet, Time now) {
  const wire::Aeth& aeth = packet.header.aeth;
  const std::uint64_t psn = extend(packet.header.psn);
  const std::uint8_t kind = aeth.syndrome & syndrome::kKindMask;
  if (psn >= req.max_sent || psn + 1 < req.una) return;  // a ghost (clause 9.7.5.1.1)
  const std::uint64_t before = req.una;

  if (kind == syndrome::kAck) {
    const bool whole = acknowledge(psn + 1);
    if (!requesting()) return;
    if (req.una != before) progress(now);
    update_credits(aeth);
    if (!whole) lost_response();
    return;
  }
  if (psn < req.una) return;

  if (kind == syndrome::kRnrNak) {
    ++counters.rnr_naks_received;
    acknowledge(psn);
    if (!requesting()) return;
    if (req.una != before) progress(now);
    if (req.next == req.una || req.rnr_until != kNever) return;  // a duplicate
    if (rts.rnr_retry != 7) {
      if (req.rnr_retries_left == 0) {
        fail(req.queue.head(), Status::kRnrRetryExceeded);
        return;
      }
      --req.rnr_retries_left;
    }
    req.retries_left = rts.retry_count;  // it answered: nothing was lost
    go_back();
    req.rnr_until = now + rnr_delay(aeth.syndrome & syndrome::kValueMask);
    return;
  }
  if (aeth.syndrome == syndrome::kNakPsnSequence) {
    acknowledge(psn);
    if (!requesting()) return;
    if (req.next == req.una) return;  // a duplicate: it was gone back already
    // The peer lives: losses of one moment, as when its buffer overflows, are one retry.
    if (req.una != before) {
      progress(now);
    } else if (now >= req.nak_costs_from) {
      if (req.retries_left == 0) {
        fail(req.queue.head(), Status::kRetryExceeded);
        return;
      }
      --req.retries_left;
      if (rts.timeout != 0) req.nak_costs_from = now + ack_timeout(rts.timeout);
    }
    loss(false);
    go_back();
    return;
  }
  if (const auto status = status_of_nak(aeth.syndrome)) {
    acknowledge(psn);
    if (!requesting()) return;
    std::uint64_t failed = req.queue.head();
    while (req.queue.at(failed).end_psn() <= psn) ++failed;  // past local operations too
    fail(failed, *status);
  }
}

void Connection::State::handle_response(const wire::Packet& packet, Time now) {
  const std::uint64_t psn = extend(packet.header.psn);
  if (psn >= req.max_sent) return;
  if (psn < req.una) {
    ++counters.duplicate_responses;
    return;
  }
  const std::uint64_t before = req.una;
  const bool whole = acknowledge(psn);
  if (!requesting()) return;
  if (req.una != before) progress(now);
  if (!whole) {
    ++counters.lost_responses;
    lost_response();
    return;
  }
  const std::uint64_t index = req.queue.head();
  const Wqe& wqe = req.queue.at(index);
  if (!wqe.has_response()) return;  // nobody asked

  // FLUSH and ATOMIC WRITE are answered as a READ of nothing.
  const bool original = packet.header.opcode == wire::Opcode::kRcAtomicAck;
  const std::uint64_t offset = (psn - wqe.first_psn) * rtr.mtu;
  const std::uint64_t expected =
      wqe.operation == Operation::kRead ? std::min<std::uint64_t>(rtr.mtu, wqe.length - offset) : 0;
  if (original != wqe.is_atomic() || packet.payload.size() != expected) {
    fail(index, Status::kBadResponse);
    return;
  }
  // An atomic's result has the byte order of this host in memory.
  const std::span<const std::byte> data =
      original ? std::as_bytes(std::span(&packet.header.original, 1)) : packet.payload;
  if (!data.empty() && host.scatter(req.queue.sges(index), offset, data) != MemoryResult::kOk) {
    fail(index, Status::kLocalProtection);
    return;
  }
  counters.received_bytes += packet.payload.size();
  release(wqe, psn + 1);
  req.rd_atomics_in_flight.answered_before(req.una);
  if (wire::has_aeth(packet.header.opcode)) update_credits(packet.header.aeth);
  if (req.una == wqe.end_psn()) complete_head();
  if (requesting()) progress(now);
}

}  // namespace ferry::transport
