#include "transport/streams/completer.h"

#include <algorithm>
#include <optional>
#include <span>

#include "transport/timers.h"

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

void Completer::complete_head() {
  flight_.complete_oldest();
  errors_.settle();
}

bool Completer::acknowledge(std::uint64_t end) {
  while (flight_.una < end && flight_.qp.requesting()) {
    const Wqe& wqe = flight_.queue.at(flight_.queue.head());
    if (wqe.has_response()) return false;
    flight_.release(wqe, std::min(end, wqe.end_psn()));
    if (flight_.una == wqe.end_psn()) complete_head();
  }
  return true;
}

// Clause 9.7.5.2.2: an acknowledgement of something later than an unanswered READ or atomic means
// that its response was lost.
void Completer::lost_response() {
  if (!flight_.qp.requesting() || flight_.implied_nak_at == flight_.una) return;
  flight_.loss(false);
  flight_.go_back();
}

void Completer::handle_ack(const wire::Packet& packet, Time now) {
  const wire::Aeth& aeth = packet.header.aeth;
  const std::uint64_t psn = flight_.extend(packet.header.psn);
  const std::uint8_t kind = aeth.syndrome & syndrome::kKindMask;
  if (psn >= flight_.max_sent || psn + 1 < flight_.una) return;  // a ghost (clause 9.7.5.1.1)

  if (kind == syndrome::kAck) {
    const std::uint64_t before = flight_.una;
    const bool whole = acknowledge(psn + 1);
    if (!flight_.qp.requesting()) return;
    if (flight_.una != before) flight_.progress(now);
    flight_.credits.update(aeth, flight_.completed_ssn, flight_.next_ssn);
    if (!whole) lost_response();
    return;
  }
  if (psn < flight_.una) return;
  if (kind == syndrome::kRnrNak) {
    handle_rnr_nak(aeth, psn, now);
  } else if (aeth.syndrome == syndrome::kNakPsnSequence) {
    handle_sequence_nak(psn, now);
  } else if (const auto status = status_of_nak(aeth.syndrome)) {
    handle_fatal_nak(*status, psn);
  }
}

void Completer::handle_rnr_nak(const wire::Aeth& aeth, std::uint64_t psn, Time now) {
  const std::uint64_t before = flight_.una;
  ++flight_.qp.path.counters.rnr_naks_received;
  acknowledge(psn);
  if (!flight_.qp.requesting()) return;
  if (flight_.una != before) flight_.progress(now);
  if (flight_.next == flight_.una || flight_.rnr_until != kNever) return;  // a duplicate
  if (flight_.qp.rts.rnr_retry != 7) {
    if (flight_.rnr_retries_left == 0) {
      errors_.fail(flight_.queue.head(), Status::kRnrRetryExceeded);
      return;
    }
    --flight_.rnr_retries_left;
  }
  flight_.retries_left = flight_.qp.rts.retry_count;  // the peer answered: nothing was lost
  flight_.go_back();
  flight_.rnr_until = now + rnr_delay(aeth.syndrome & syndrome::kValueMask);
}

void Completer::handle_sequence_nak(std::uint64_t psn, Time now) {
  const std::uint64_t before = flight_.una;
  acknowledge(psn);
  if (!flight_.qp.requesting()) return;
  if (flight_.next == flight_.una) return;  // a duplicate: we have gone back already
  // The peer lives, so all losses within one ACK timeout, as when its buffer overflows, cost one
  // retry.
  if (flight_.una != before) {
    flight_.progress(now);
  } else if (now >= flight_.nak_costs_from) {
    if (flight_.retries_left == 0) {
      errors_.fail(flight_.queue.head(), Status::kRetryExceeded);
      return;
    }
    --flight_.retries_left;
    const std::uint8_t timeout = flight_.qp.rts.timeout;
    if (timeout != 0) flight_.nak_costs_from = now + ack_timeout(timeout);
  }
  flight_.loss(false);
  flight_.go_back();
}

void Completer::handle_fatal_nak(Status status, std::uint64_t psn) {
  acknowledge(psn);
  if (!flight_.qp.requesting()) return;
  std::uint64_t failed = flight_.queue.head();
  while (flight_.queue.at(failed).end_psn() <= psn) ++failed;  // skips local operations, too
  errors_.fail(failed, status);
}

void Completer::handle_response(const wire::Packet& packet, Time now) {
  Counters& counters = flight_.qp.path.counters;
  const std::uint64_t psn = flight_.extend(packet.header.psn);
  if (psn >= flight_.max_sent) return;
  if (psn < flight_.una) {
    ++counters.duplicate_responses;
    return;
  }
  const std::uint64_t before = flight_.una;
  const bool whole = acknowledge(psn);
  if (!flight_.qp.requesting()) return;
  if (flight_.una != before) flight_.progress(now);
  if (!whole) {
    ++counters.lost_responses;
    lost_response();
    return;
  }
  const std::uint64_t index = flight_.queue.head();
  const Wqe& wqe = flight_.queue.at(index);
  if (!wqe.has_response()) return;  // nobody asked for it

  // FLUSH and ATOMIC WRITE are answered like a READ of 0 bytes.
  const std::uint32_t mtu = flight_.qp.rtr.mtu;
  const bool original = packet.header.opcode == wire::Opcode::kRcAtomicAck;
  const std::uint64_t offset = (psn - wqe.first_psn) * mtu;
  const std::uint64_t expected =
      wqe.operation == Operation::kRead ? std::min<std::uint64_t>(mtu, wqe.length - offset) : 0;
  if (original != wqe.is_atomic() || packet.payload.size() != expected) {
    errors_.fail(index, Status::kBadResponse);
    return;
  }
  // An atomic's result has the byte order of this host in memory.
  const std::span<const std::byte> data =
      original ? std::as_bytes(std::span(&packet.header.original, 1)) : packet.payload;
  if (!data.empty() &&
      flight_.qp.path.host.scatter(flight_.queue.sges(index), offset, data) != MemoryResult::kOk) {
    errors_.fail(index, Status::kLocalProtection);
    return;
  }
  counters.received_bytes += packet.payload.size();
  flight_.release(wqe, psn + 1);
  flight_.rd_atomics.answered_before(flight_.una);
  if (wire::has_aeth(packet.header.opcode)) {
    flight_.credits.update(packet.header.aeth, flight_.completed_ssn, flight_.next_ssn);
  }
  if (flight_.una == wqe.end_psn()) complete_head();
  if (flight_.qp.requesting()) flight_.progress(now);
}

void Completer::go_back_to_peer(std::uint32_t expected_psn, Time now) {
  if (!flight_.qp.requesting()) return;
  acknowledge(flight_.extend(expected_psn));
  if (!flight_.qp.requesting()) return;
  flight_.go_back();
  flight_.progress(now);
}

}  // namespace ferry::transport
