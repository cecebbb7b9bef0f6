#include "transport/streams/send_stream.h"

#include <algorithm>

#include "wire/psn.h"

namespace ferry::transport {
namespace {

using wire::Opcode;

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

void SendStream::start(std::uint32_t first_psn) {
  una = next = max_sent = kPsnRound + (first_psn & wire::kPsnMask);
}

RequestPacket SendStream::packet_at(std::uint64_t index, std::uint64_t psn) const {
  const Wqe& wqe = queue.at(index);
  const std::uint32_t mtu = qp.rtr.mtu;
  RequestPacket packet{.index = index, .psn = psn};
  packet.offset_psns = index == queue.assigned() ? 0 : psn - wqe.first_psn;
  packet.offset = packet.offset_psns * mtu;
  // The requests of a READ end at fixed places, also when one is repeated from its middle: a
  // duplicate may not reach past the requests that the responder has seen (clause 9.7.5.1.2).
  const std::uint64_t end = wqe.operation == Operation::kRead
                                ? (packet.offset / kReadRequestBytes + 1) * kReadRequestBytes
                                : packet.offset + mtu;
  packet.bytes = static_cast<std::uint32_t>(std::min(end, wqe.length) - packet.offset);
  packet.psns = std::max<std::uint32_t>((packet.bytes + mtu - 1) / mtu, 1);
  return packet;
}

void SendStream::start_wqe() {
  queue.assign(next, next_ssn, qp.rtr.mtu);
  const Wqe& wqe = queue.at(cursor);
  next_ssn += wqe.ssn_count;
  if (wqe.has_response()) ++pending_rd_atomics;
}

void SendStream::carry_out(Wqe& wqe) {
  if (wqe.operation == Operation::kBindWindow) {
    wqe.local_error = qp.path.host.bind_window(queue.operands(cursor).binding);
  } else if (!qp.path.host.invalidate(wqe.invalidate_rkey, false)) {
    wqe.local_error = Status::kWindowBind;  // IBTA: "memory management operation error"
  }
  skip_local();
}

void SendStream::skip_local() {
  while (cursor != queue.assigned()) {
    const Wqe& wqe = queue.at(cursor);
    if (!wqe.is_local() || wqe.local_error != Status::kSuccess) return;
    ++cursor;
  }
}

void SendStream::build_request(const RequestPacket& packet, OutPacket* out) const {
  const Wqe& wqe = queue.at(packet.index);
  const bool first = packet.offset_psns == 0;
  const bool last = packet.psn + packet.psns == wqe.end_psn();
  const Opcodes opcodes = opcodes_of(wqe.operation);
  qp.path.address(
      out->header,
      first ? (last ? opcodes.only : opcodes.first) : (last ? opcodes.last : opcodes.middle),
      static_cast<std::uint32_t>(packet.psn & wire::kPsnMask));
  out->header.xrc_srqn = wqe.remote_srqn;
  switch (wqe.operation) {
    case Operation::kRead:
      out->header.reth = {wqe.remote_address + packet.offset, wqe.rkey, packet.bytes};
      return;
    case Operation::kCompareSwap:
    case Operation::kFetchAdd: {
      const WqeOperands& operands = queue.operands(packet.index);
      const bool swap = wqe.operation == Operation::kCompareSwap;
      out->header.atomic = {wqe.remote_address, wqe.rkey,
                            swap ? operands.swap : operands.compare_add,
                            swap ? operands.compare_add : 0};
      return;
    }
    case Operation::kFlush: {
      const WqeOperands& operands = queue.operands(packet.index);
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
    out->bytes = queue.inline_data(packet.index) + packet.offset;
  } else {
    out->source = OutPacket::Source::kSges;
    out->sges = queue.sges(packet.index);
    out->offset = packet.offset;
  }
}

void SendStream::rewind() {
  next = una;
  cursor = queue.head();
  skip_local();
}

void SendStream::complete_oldest() {
  const Wqe& wqe = queue.at(queue.head());
  completed_ssn = static_cast<std::int64_t>(wqe.first_ssn + wqe.ssn_count - 1);
  if (wqe.has_response()) --pending_rd_atomics;
  if (wqe.signaled) {
    const bool brings_data = wqe.operation == Operation::kRead || wqe.is_atomic();
    qp.path.host.complete_send({.wr_id = wqe.wr_id,
                                .status = Status::kSuccess,
                                .operation = wqe.operation,
                                .bytes = brings_data ? static_cast<std::uint32_t>(wqe.length) : 0});
  }
  queue.pop();
}

bool SendStream::settle() {
  while (queue.head() != queue.assigned()) {
    const Wqe& wqe = queue.at(queue.head());
    if (wqe.local_error != Status::kSuccess) return false;
    if (!wqe.is_local()) return true;
    complete_oldest();
  }
  return true;
}

void SendStream::flush(std::uint64_t failed, Status status) {
  while (!queue.empty()) {
    const Wqe& wqe = queue.at(queue.head());
    const SendCompletion completion{.wr_id = wqe.wr_id,
                                    .status = queue.head() == failed ? status : Status::kFlush,
                                    .operation = wqe.operation};
    queue.pop();
    qp.path.host.complete_send(completion);
  }
  una = next = max_sent;
  cursor = queue.head();
  pending_rd_atomics = 0;
}

// Clause 10.3.1.4: the queue is drained when everything that was begun is acknowledged.
void SendStream::check_drained() {
  if (qp.qp_state != QpState::kSqd || drained_raised || una != max_sent) return;
  if (queue.head() != queue.assigned() && queue.at(queue.head()).first_psn < max_sent) {
    return;
  }
  drained_raised = true;
  qp.path.host.raise(Host::Event::kSqDrained);
}

bool SendStream::is_waited_for() const {
  for (std::uint64_t i = queue.head(); i != queue.tail(); ++i) {
    if (i >= queue.assigned() || queue.at(i).signaled) return true;
    if (queue.at(i).end_psn() > max_sent) return true;
  }
  return false;
}

}  // namespace ferry::transport
