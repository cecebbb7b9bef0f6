#include "transport/connected/responder.h"

#include <algorithm>
#include <optional>

#include "wire/psn.h"

namespace ferry::transport {
namespace {

using wire::Opcode;
namespace syndrome = wire::syndrome;

std::uint32_t psns_of_read(std::uint32_t length, std::uint32_t mtu) {
  return std::max<std::uint32_t>(length / mtu + (length % mtu != 0), 1);
}

// Clauses 9.7.4.1.2 (sequence of opcodes) and 9.7.4.1.6 (payload lengths).
bool opcode_fits(const ReceiveStream& stream, const wire::Packet& packet) {
  const RequestShape shape = shape_of(packet.header.opcode);
  if (stream.message != (shape.begins ? RequestKind::kNone : shape.kind)) return false;
  if (!shape.ends) return packet.payload.size() == stream.qp.rtr.mtu;
  if (!shape.begins && packet.payload.empty()) return false;
  if (shape.kind == RequestKind::kAtomicWrite) return packet.payload.size() == kAtomicBytes;
  return packet.payload.size() <= stream.qp.rtr.mtu;
}

}  // namespace

void Responder::refuse(std::uint8_t code, std::uint32_t psn, Status status) {
  responses_.nak(code, psn);
  responses_.nak_fatal = true;
  if (!stream_.end_receive(status)) {
    host().raise(code == syndrome::kNakRemoteAccess ? Host::Event::kQpAccessError
                                                    : Host::Event::kQpRequestError);
  }
  errors_.flush_all();
}

void Responder::handle(const wire::Packet& packet) {
  const std::int32_t ahead = wire::psn_diff(packet.header.psn, stream_.expected_psn);
  if (ahead < 0) {
    ++counters().duplicate_packets;
    handle_duplicate(packet);
    return;
  }
  if (ahead > 0) {
    ++counters().out_of_sequence;
    if (responses_.nak_state != Responses::NakState::kNone) return;  // once per gap
    responses_.nak_state = Responses::NakState::kSequence;
    responses_.nak(syndrome::kNakPsnSequence, stream_.expected_psn);
    return;
  }
  responses_.nak_state = Responses::NakState::kNone;
  responses_.nak_due = false;  // the gap that the NAK reports is closed
  if (!opcode_fits(stream_, packet) || !stream_.select_srq(packet.header.xrc_srqn)) {
    refuse(syndrome::kNakInvalidRequest, stream_.expected_psn, Status::kLocalQpOperation);
    return;
  }
  switch (shape_of(packet.header.opcode).kind) {
    case RequestKind::kNone: break;  // not a request
    case RequestKind::kSend: handle_send(packet); break;
    case RequestKind::kWrite: handle_write(packet); break;
    case RequestKind::kRead: handle_read(packet); break;
    case RequestKind::kAtomic: handle_atomic(packet); break;
    case RequestKind::kAtomicWrite: handle_atomic_write(packet); break;
    case RequestKind::kFlush: handle_flush(packet); break;
  }
}

bool Responder::take_receive(const wire::Packet& packet) {
  using Result = Host::SrqResult;
  Result result;
  if (stream_.qp.limits.type == ConnectionType::kXrcTarget) {
    stream_.receive_srqn = packet.header.xrc_srqn;
    result = host().take_receive_of(stream_.receive_srqn, &stream_.receive);
  } else {
    result = host().take_receive(&stream_.receive) ? Result::kOk : Result::kEmpty;
  }
  if (result == Result::kInvalid) {
    refuse(syndrome::kNakInvalidRequest, stream_.expected_psn, Status::kLocalQpOperation);
    return false;
  }
  if (result == Result::kEmpty) {
    ++counters().rnr_naks_sent;
    responses_.nak_state = Responses::NakState::kRnr;
    responses_.nak(syndrome::kRnrNak | stream_.qp.rtr.min_rnr_timer, stream_.expected_psn);
    return false;
  }
  stream_.begin_receive();
  return true;
}

void Responder::received(const wire::Packet& packet) {
  stream_.expected_psn = wire::psn_add(stream_.expected_psn, 1);
  stream_.requests_received = true;
  stream_.offset += packet.payload.size();
  if (packet.header.ack_request) responses_.ack_due = true;
  responses_.unanswered = true;
  counters().received_bytes += packet.payload.size();
  if (shape_of(packet.header.opcode).ends) message_done(packet);
}

void Responder::message_done(const wire::Packet& packet) {
  const bool write = stream_.message == RequestKind::kWrite;
  stream_.message = RequestKind::kNone;
  stream_.msn = wire::psn_add(stream_.msn, 1);
  if (!stream_.has_receive) return;
  stream_.has_receive = false;
  const bool immediate = wire::has_immediate(packet.header.opcode);
  const bool invalidated = wire::has_invalidate(packet.header.opcode);
  host().complete_receive({.wr_id = stream_.receive.wr_id,
                           .status = Status::kSuccess,
                           .is_write = write,
                           .has_immediate = immediate,
                           .solicited = packet.header.solicited,
                           .immediate = immediate ? packet.header.immediate : 0,
                           .bytes = static_cast<std::uint32_t>(stream_.offset),
                           .has_invalidated = invalidated,
                           .invalidated_rkey = invalidated ? packet.header.invalidate_rkey : 0,
                           .srqn = stream_.receive_srqn});
}

void Responder::handle_send(const wire::Packet& packet) {
  if (shape_of(packet.header.opcode).begins) {
    if (!take_receive(packet)) return;
    stream_.message = RequestKind::kSend;
    stream_.offset = 0;
  }
  if (stream_.offset + packet.payload.size() > stream_.receive_length) {
    refuse(syndrome::kNakInvalidRequest, stream_.expected_psn, Status::kLocalLength);
    return;
  }
  if (!packet.payload.empty() && host().scatter_receive(stream_.receive.sges, stream_.offset,
                                                        packet.payload) != MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteOperational, stream_.expected_psn, Status::kLocalProtection);
    return;
  }
  // The key is invalidated before the receive completes (clause 10.6.7.2.4).
  if (wire::has_invalidate(packet.header.opcode) &&
      !host().invalidate(packet.header.invalidate_rkey, true)) {
    refuse(syndrome::kNakRemoteAccess, stream_.expected_psn, Status::kLocalAccess);
    return;
  }
  received(packet);
}

void Responder::handle_write(const wire::Packet& packet) {
  const Opcode opcode = packet.header.opcode;
  const RequestShape shape = shape_of(opcode);
  const bool first = shape.begins;
  const wire::Reth& write = first ? packet.header.reth : stream_.write;
  const std::uint64_t offset = first ? 0 : stream_.offset;
  const std::uint64_t after = offset + packet.payload.size();
  if (write.dma_length > kMaxMessage ||
      (shape.ends ? after != write.dma_length : after >= write.dma_length)) {
    refuse(syndrome::kNakInvalidRequest, stream_.expected_psn, Status::kLocalQpOperation);
    return;
  }
  if (first && write.dma_length > 0 &&
      host().check_region(write.rkey, write.virtual_address, write.dma_length, kRemoteWrite) !=
          MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteAccess, stream_.expected_psn, Status::kLocalAccess);
    return;
  }
  // The receive WQE is taken before the data is written: an RNR NAK makes this packet come again,
  // and the last byte must be written last.
  if (wire::has_immediate(opcode) && !take_receive(packet)) return;
  if (!packet.payload.empty() && host().write_region(write.rkey, write.virtual_address + offset,
                                                     packet.payload) != MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteAccess, stream_.expected_psn, Status::kLocalAccess);
    return;
  }
  if (first) {
    stream_.message = RequestKind::kWrite;
    stream_.write = write;
    stream_.offset = 0;
  }
  received(packet);
}

// A requester that asks for more than it was granted is refused.
bool Responder::responder_resource() {
  if (responses_.has_room()) return true;
  refuse(syndrome::kNakInvalidRequest, stream_.expected_psn, Status::kLocalQpOperation);
  return false;
}

void Responder::handle_read(const wire::Packet& packet) {
  const wire::Reth& reth = packet.header.reth;
  if (reth.dma_length > kMaxMessage) {
    refuse(syndrome::kNakInvalidRequest, stream_.expected_psn, Status::kLocalQpOperation);
    return;
  }
  if (!responder_resource()) return;
  if (reth.dma_length > 0 && host().check_region(reth.rkey, reth.virtual_address, reth.dma_length,
                                                 kRemoteRead) != MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteAccess, stream_.expected_psn, Status::kLocalAccess);
    return;
  }
  responses_.push({.psns = psns_of_read(reth.dma_length, stream_.qp.rtr.mtu),
                   .srqn = packet.header.xrc_srqn,
                   .address = reth.virtual_address,
                   .rkey = reth.rkey,
                   .length = reth.dma_length});
}

// An atomic is carried out at once; its result is kept for a requester that did not hear it.
void Responder::handle_atomic(const wire::Packet& packet) {
  const wire::AtomicEth& atomic = packet.header.atomic;
  if (atomic.virtual_address % kAtomicBytes != 0) {
    refuse(syndrome::kNakInvalidRequest, stream_.expected_psn, Status::kLocalQpOperation);
    return;
  }
  if (!responder_resource()) return;
  std::uint64_t original = 0;
  const MemoryResult result =
      packet.header.opcode == Opcode::kRcCompareSwap
          ? host().atomic(Operation::kCompareSwap, atomic.rkey, atomic.virtual_address,
                          atomic.compare, atomic.swap_or_add, &original)
          : host().atomic(Operation::kFetchAdd, atomic.rkey, atomic.virtual_address,
                          atomic.swap_or_add, 0, &original);
  if (result != MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteAccess, stream_.expected_psn, Status::kLocalAccess);
    return;
  }
  responses_.push(
      {.kind = RequestKind::kAtomic, .srqn = packet.header.xrc_srqn, .original = original});
}

// Annex A19: the 8 bytes are written in one store, after everything before them; the answer is that
// to a READ of 0 bytes.
void Responder::handle_atomic_write(const wire::Packet& packet) {
  const wire::Reth& reth = packet.header.reth;
  if (reth.dma_length != kAtomicBytes || reth.virtual_address % kAtomicBytes != 0) {
    refuse(syndrome::kNakInvalidRequest, stream_.expected_psn, Status::kLocalQpOperation);
    return;
  }
  if (!responder_resource()) return;
  if (host().write_atomic(reth.rkey, reth.virtual_address, packet.payload.first<kAtomicBytes>()) !=
      MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteAccess, stream_.expected_psn, Status::kLocalAccess);
    return;
  }
  counters().received_bytes += packet.payload.size();
  responses_.push({.kind = RequestKind::kAtomicWrite, .srqn = packet.header.xrc_srqn});
}

// Annex A19. Earlier WRITEs were placed when they were handled, so only the Host's part is left.
void Responder::handle_flush(const wire::Packet& packet) {
  const wire::Feth& flush = packet.header.feth;
  const wire::Reth& reth = packet.header.reth;
  const bool known =
      flush.placement != 0 &&
      (flush.placement & ~(wire::Feth::kGlobalVisibility | wire::Feth::kPersistence)) == 0 &&
      flush.selectivity <= wire::Feth::kWholeRegion;
  if (!known || reth.dma_length > kMaxMessage) {
    refuse(syndrome::kNakInvalidRequest, stream_.expected_psn, Status::kLocalQpOperation);
    return;
  }
  if (!responder_resource()) return;
  if (host().flush_region(flush, reth.rkey, reth.virtual_address, reth.dma_length) !=
      MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteAccess, stream_.expected_psn, Status::kLocalAccess);
    return;
  }
  responses_.push({.kind = RequestKind::kFlush, .srqn = packet.header.xrc_srqn});
}

// Clause 9.7.5.1.2: SEND and WRITE are acknowledged again and not executed; a READ, or the rest of
// one, is executed again; the others are answered with their saved results.
void Responder::handle_duplicate(const wire::Packet& packet) {
  const RequestKind kind = shape_of(packet.header.opcode).kind;
  if (kind == RequestKind::kSend || kind == RequestKind::kWrite) {
    responses_.ack_due = true;
    return;
  }
  if (stream_.qp.rtr.max_dest_rd_atomic == 0 || !stream_.select_srq(packet.header.xrc_srqn)) return;
  Response response{.kind = kind,
                    .duplicate = true,
                    .first_psn = packet.header.psn,
                    .msn = stream_.msn,
                    .srqn = packet.header.xrc_srqn};
  const std::int64_t behind = -wire::psn_diff(response.first_psn, stream_.expected_psn);
  if (kind == RequestKind::kRead) {
    const wire::Reth& reth = packet.header.reth;
    if (reth.dma_length > kMaxMessage) return;
    response.psns = psns_of_read(reth.dma_length, stream_.qp.rtr.mtu);
    if (response.psns > behind) return;  // it reaches past the requests that have come
    // The requester may have had its answer long ago, and the region may be gone since. rdma_rxe,
    // too, drops a repeated READ that it cannot carry out.
    if (reth.dma_length > 0 && host().check_region(reth.rkey, reth.virtual_address, reth.dma_length,
                                                   kRemoteRead) != MemoryResult::kOk) {
      return;
    }
    response.address = reth.virtual_address;
    response.rkey = reth.rkey;
    response.length = reth.dma_length;
  } else {
    const SavedResult* saved = responses_.saved.find(response.first_psn, kind);
    if (saved == nullptr) return;  // no requester waits for it any more (clause 9.4.5)
    response.original = saved->original;
  }
  responses_.repeat(response);
}

unsigned Responder::transmit(unsigned budget) {
  std::optional<std::uint32_t> failed;
  const unsigned sent = responses_.transmit(budget, &failed);
  if (failed) refuse(syndrome::kNakRemoteAccess, *failed, Status::kLocalAccess);
  return sent;
}

}  // namespace ferry::transport
