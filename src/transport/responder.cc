#include "transport/connection_state.h"

// The responder's receiving half: requests in, memory and receive completions out (IBTA vol. 1
// clauses 9.7.4, 9.7.5.1, 9.9.3).
namespace ferry::transport {
namespace {

using wire::Opcode;
namespace syndrome = wire::syndrome;

std::uint32_t psns_of_read(std::uint32_t length, std::uint32_t mtu) {
  return std::max<std::uint32_t>(length / mtu + (length % mtu != 0), 1);
}

}  // namespace

// Clauses 9.7.4.1.2 (sequence of opcodes) and 9.7.4.1.6 (payload lengths).
bool Connection::State::opcode_fits(const wire::Packet& packet) const {
  const RequestShape shape = shape_of(packet.header.opcode);
  if (rsp.message != (shape.begins ? RequestKind::kNone : shape.kind)) return false;
  if (!shape.ends) return packet.payload.size() == rtr.mtu;
  if (!shape.begins && packet.payload.empty()) return false;
  if (shape.kind == RequestKind::kAtomicWrite) return packet.payload.size() == kAtomicBytes;
  return packet.payload.size() <= rtr.mtu;
}

void Connection::State::nak(std::uint8_t code, std::uint32_t psn) {
  rsp.nak_due = true;
  rsp.nak_syndrome = code;
  rsp.nak_psn = psn;
}

void Connection::State::refuse(std::uint8_t code, std::uint32_t psn, Status status) {
  nak(code, psn);
  rsp.nak_fatal = true;
  if (rsp.has_receive) {
    rsp.has_receive = false;
    host.complete_receive({.wr_id = rsp.receive.wr_id, .status = status, .srqn = rsp.receive_srqn});
  } else {
    host.raise(code == syndrome::kNakRemoteAccess ? Host::Event::kQpAccessError
                                                  : Host::Event::kQpRequestError);
  }
  flush_all();
}

void Connection::State::handle_request(const wire::Packet& packet) {
  const std::int32_t ahead = wire::psn_diff(packet.header.psn, rsp.expected_psn);
  if (ahead < 0) {
    ++counters.duplicate_packets;
    handle_duplicate(packet);
    return;
  }
  if (ahead > 0) {
    ++counters.out_of_sequence;
    if (rsp.nak_state != ResponderState::NakState::kNone) return;  // once per gap
    rsp.nak_state = ResponderState::NakState::kSequence;
    nak(syndrome::kNakPsnSequence, rsp.expected_psn);
    return;
  }
  rsp.nak_state = ResponderState::NakState::kNone;
  rsp.nak_due = false;  // the gap it was about is closed
  if (!opcode_fits(packet) || !select_srq(packet.header.xrc_srqn)) {
    refuse(syndrome::kNakInvalidRequest, rsp.expected_psn, Status::kLocalQpOperation);
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

bool Connection::State::take_receive(const wire::Packet& packet) {
  using Result = Host::SrqResult;
  Result result;
  if (limits.type == ConnectionType::kXrcTarget) {
    rsp.receive_srqn = packet.header.xrc_srqn;
    result = host.take_receive_of(rsp.receive_srqn, &rsp.receive);
  } else {
    result = host.take_receive(&rsp.receive) ? Result::kOk : Result::kEmpty;
  }
  if (result == Result::kInvalid) {
    refuse(syndrome::kNakInvalidRequest, rsp.expected_psn, Status::kLocalQpOperation);
    return false;
  }
  if (result == Result::kEmpty) {
    ++counters.rnr_naks_sent;
    rsp.nak_state = ResponderState::NakState::kRnr;
    nak(syndrome::kRnrNak | rtr.min_rnr_timer, rsp.expected_psn);
    return false;
  }
  rsp.has_receive = true;
  rsp.receive_length = rsp.receive.length();
  return true;
}

void Connection::State::received(const wire::Packet& packet) {
  rsp.expected_psn = wire::psn_add(rsp.expected_psn, 1);
  rsp.requests_received = true;
  rsp.offset += packet.payload.size();
  if (packet.header.ack_request) rsp.ack_due = true;
  rsp.unanswered = true;
  counters.received_bytes += packet.payload.size();
  if (shape_of(packet.header.opcode).ends) message_done(packet);
}

void Connection::State::message_done(const wire::Packet& packet) {
  const bool write = rsp.message == RequestKind::kWrite;
  rsp.message = RequestKind::kNone;
  rsp.msn = wire::psn_add(rsp.msn, 1);
  if (!rsp.has_receive) return;
  rsp.has_receive = false;
  const bool immediate = wire::has_immediate(packet.header.opcode);
  const bool invalidated = wire::has_invalidate(packet.header.opcode);
  host.complete_receive({.wr_id = rsp.receive.wr_id,
                         .status = Status::kSuccess,
                         .is_write = write,
                         .has_immediate = immediate,
                         .solicited = packet.header.solicited,
                         .immediate = immediate ? packet.header.immediate : 0,
                         .bytes = static_cast<std::uint32_t>(rsp.offset),
                         .has_invalidated = invalidated,
                         .invalidated_rkey = invalidated ? packet.header.invalidate_rkey : 0,
                         .srqn = rsp.receive_srqn});
}

void Connection::State::handle_send(const wire::Packet& packet) {
  if (shape_of(packet.header.opcode).begins) {
    if (!take_receive(packet)) return;
    rsp.message = RequestKind::kSend;
    rsp.offset = 0;
  }
  if (rsp.offset + packet.payload.size() > rsp.receive_length) {
    refuse(syndrome::kNakInvalidRequest, rsp.expected_psn, Status::kLocalLength);
    return;
  }
  if (!packet.payload.empty() &&
      host.scatter_receive(rsp.receive.sges, rsp.offset, packet.payload) != MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteOperational, rsp.expected_psn, Status::kLocalProtection);
    return;
  }
  // Before the receive completes (clause 10.6.7.2.4).
  if (wire::has_invalidate(packet.header.opcode) &&
      !host.invalidate(packet.header.invalidate_rkey, true)) {
    refuse(syndrome::kNakRemoteAccess, rsp.expected_psn, Status::kLocalAccess);
    return;
  }
  received(packet);
}

void Connection::State::handle_write(const wire::Packet& packet) {
  const Opcode opcode = packet.header.opcode;
  const RequestShape shape = shape_of(opcode);
  const bool first = shape.begins;
  const wire::Reth& write = first ? packet.header.reth : rsp.write;
  const std::uint64_t offset = first ? 0 : rsp.offset;
  const std::uint64_t after = offset + packet.payload.size();
  if (write.dma_length > kMaxMessage ||
      (shape.ends ? after != write.dma_length : after >= write.dma_length)) {
    refuse(syndrome::kNakInvalidRequest, rsp.expected_psn, Status::kLocalQpOperation);
    return;
  }
  if (first && write.dma_length > 0 &&
      host.check_region(write.rkey, write.virtual_address, write.dma_length, kRemoteWrite) !=
          MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteAccess, rsp.expected_psn, Status::kLocalAccess);
    return;
  }
  // Before the data: an RNR NAK makes this packet come again, and the last byte must be written
  // last.
  if (wire::has_immediate(opcode) && !take_receive(packet)) return;
  if (!packet.payload.empty() && host.write_region(write.rkey, write.virtual_address + offset,
                                                   packet.payload) != MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteAccess, rsp.expected_psn, Status::kLocalAccess);
    return;
  }
  if (first) {
    rsp.message = RequestKind::kWrite;
    rsp.write = write;
    rsp.offset = 0;
  }
  received(packet);
}

bool Connection::State::select_srq(std::uint32_t srqn) {
  return limits.type != ConnectionType::kXrcTarget || host.select_srq(srqn);
}

// Clause 9.7.4.1: a requester that asks for more than it was granted.
bool Connection::State::responder_resource() {
  if (rsp.responses.size() == rtr.max_dest_rd_atomic) {
    // A repeated request that the network doubled must not cost a new one its place.
    const auto repeated = std::find_if(rsp.responses.begin(), rsp.responses.end(),
                                       [](const Response& response) { return response.duplicate; });
    if (repeated != rsp.responses.end()) rsp.responses.erase(repeated);
  }
  if (rsp.responses.size() < rtr.max_dest_rd_atomic) return true;
  refuse(syndrome::kNakInvalidRequest, rsp.expected_psn, Status::kLocalQpOperation);
  return false;
}

void Connection::State::respond(Response response) {
  rsp.msn = wire::psn_add(rsp.msn, 1);
  response.first_psn = rsp.expected_psn;
  response.msn = rsp.msn;
  rsp.saved.push({response.first_psn, response.kind, response.original}, rtr.max_dest_rd_atomic);
  rsp.responses.push_back(response);
  rsp.expected_psn = wire::psn_add(rsp.expected_psn, response.psns);
  rsp.requests_received = true;
  rsp.ack_due = false;  // the response acknowledges what came before
}

void Connection::State::handle_read(const wire::Packet& packet) {
  const wire::Reth& reth = packet.header.reth;
  if (reth.dma_length > kMaxMessage) {
    refuse(syndrome::kNakInvalidRequest, rsp.expected_psn, Status::kLocalQpOperation);
    return;
  }
  if (!responder_resource()) return;
  if (reth.dma_length > 0 && host.check_region(reth.rkey, reth.virtual_address, reth.dma_length,
                                               kRemoteRead) != MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteAccess, rsp.expected_psn, Status::kLocalAccess);
    return;
  }
  respond({.psns = psns_of_read(reth.dma_length, rtr.mtu),
           .address = reth.virtual_address,
           .rkey = reth.rkey,
           .length = reth.dma_length,
           .srqn = packet.header.xrc_srqn});
}

// Carried out at once; what it returned is kept for a requester that did not hear it.
void Connection::State::handle_atomic(const wire::Packet& packet) {
  const wire::AtomicEth& atomic = packet.header.atomic;
  if (atomic.virtual_address % kAtomicBytes != 0) {
    refuse(syndrome::kNakInvalidRequest, rsp.expected_psn, Status::kLocalQpOperation);
    return;
  }
  if (!responder_resource()) return;
  std::uint64_t original = 0;
  const MemoryResult result =
      packet.header.opcode == Opcode::kRcCompareSwap
          ? host.atomic(Operation::kCompareSwap, atomic.rkey, atomic.virtual_address,
                        atomic.compare, atomic.swap_or_add, &original)
          : host.atomic(Operation::kFetchAdd, atomic.rkey, atomic.virtual_address,
                        atomic.swap_or_add, 0, &original);
  if (result != MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteAccess, rsp.expected_psn, Status::kLocalAccess);
    return;
  }
  respond({.kind = RequestKind::kAtomic, .original = original, .srqn = packet.header.xrc_srqn});
}

// Annex A19: in one store, after everything before it; answered as a READ of nothing.
void Connection::State::handle_atomic_write(const wire::Packet& packet) {
  const wire::Reth& reth = packet.header.reth;
  if (reth.dma_length != kAtomicBytes || reth.virtual_address % kAtomicBytes != 0) {
    refuse(syndrome::kNakInvalidRequest, rsp.expected_psn, Status::kLocalQpOperation);
    return;
  }
  if (!responder_resource()) return;
  if (host.write_atomic(reth.rkey, reth.virtual_address, packet.payload.first<kAtomicBytes>()) !=
      MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteAccess, rsp.expected_psn, Status::kLocalAccess);
    return;
  }
  counters.received_bytes += packet.payload.size();
  respond({.kind = RequestKind::kAtomicWrite, .srqn = packet.header.xrc_srqn});
}

// Annex A19. WRITEs before it are placed when they are handled, so only the host's part is left.
void Connection::State::handle_flush(const wire::Packet& packet) {
  const wire::Feth& flush = packet.header.feth;
  const wire::Reth& reth = packet.header.reth;
  const bool known =
      flush.placement != 0 &&
      (flush.placement & ~(wire::Feth::kGlobalVisibility | wire::Feth::kPersistence)) == 0 &&
      flush.selectivity <= wire::Feth::kWholeRegion;
  if (!known || reth.dma_length > kMaxMessage) {
    refuse(syndrome::kNakInvalidRequest, rsp.expected_psn, Status::kLocalQpOperation);
    return;
  }
  if (!responder_resource()) return;
  if (host.flush_region(flush, reth.rkey, reth.virtual_address, reth.dma_length) !=
      MemoryResult::kOk) {
    refuse(syndrome::kNakRemoteAccess, rsp.expected_psn, Status::kLocalAccess);
    return;
  }
  respond({.kind = RequestKind::kFlush, .srqn = packet.header.xrc_srqn});
}

// Clause 9.7.5.1.2: SEND and WRITE are acknowledged again and not executed; a READ, or the rest of
// one, is executed again; the others are answered with what they returned.
void Connection::State::handle_duplicate(const wire::Packet& packet) {
  const RequestKind kind = shape_of(packet.header.opcode).kind;
  if (kind == RequestKind::kSend || kind == RequestKind::kWrite) {
    rsp.ack_due = true;
    return;
  }
  if (rtr.max_dest_rd_atomic == 0 || !select_srq(packet.header.xrc_srqn)) return;
  Response response{.kind = kind,
                    .first_psn = packet.header.psn,
                    .msn = rsp.msn,
                    .srqn = packet.header.xrc_srqn,
                    .duplicate = true};
  const std::int64_t behind = -wire::psn_diff(response.first_psn, rsp.expected_psn);
  if (kind == RequestKind::kRead) {
    const wire::Reth& reth = packet.header.reth;
    if (reth.dma_length > kMaxMessage) return;
    response.psns = psns_of_read(reth.dma_length, rtr.mtu);
    if (response.psns > behind) return;  // reaches past what was asked for before
    // The requester may have had its answer long ago, and the region is gone since. rdma_rxe too
    // drops a repeated READ that it cannot carry out.
    if (reth.dma_length > 0 && host.check_region(reth.rkey, reth.virtual_address, reth.dma_length,
                                                 kRemoteRead) != MemoryResult::kOk) {
      return;
    }
    response.address = reth.virtual_address;
    response.rkey = reth.rkey;
    response.length = reth.dma_length;
  } else {
    const SavedResult* saved = rsp.saved.find(response.first_psn, kind);
    if (saved == nullptr) return;  // no requester waits for it any more (clause 9.4.5)
    response.original = saved->original;
  }
  // It takes the place of what it repeats; the responses stay in the order of their PSNs.
  const auto position = [&](const Response& other) {
    return -wire::psn_diff(other.first_psn, rsp.expected_psn);
  };
  std::erase_if(rsp.responses, [&](const Response& other) {
    return position(other) - std::int64_t{other.psns} < behind &&
           position(other) > behind - response.psns;
  });
  if (rsp.responses.size() >= rtr.max_dest_rd_atomic) return;
  const auto later = std::find_if(rsp.responses.begin(), rsp.responses.end(),
                                  [&](const Response& other) { return position(other) < behind; });
  rsp.responses.insert(later, response);
}

}  // namespace ferry::transport
