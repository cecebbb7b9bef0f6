#include "transport/connection_state.h"

// The responder of UC (IBTA vol. 1 clauses 9.8.2, 9.9.3): a message that is not whole, that nobody
// posted a receive WQE for, or whose keys are wrong, is dropped without a word; the next one that
// begins is taken again. The receive WQE of a dropped message serves the next (class E). What is
// wrong with the WQE itself ends in the error state.
namespace ferry::transport {

void Connection::State::drop_message() {
  if (rsp.message != RequestKind::kNone) ++counters.dropped_messages;
  rsp.message = RequestKind::kNone;
}

void Connection::State::fail_receive(Status status) {
  rsp.has_receive = false;
  host.complete_receive({.wr_id = rsp.receive.wr_id, .status = status});
  flush_all();
}

void Connection::State::handle_uc(const wire::Packet& packet) {
  const RequestShape shape = shape_of(packet.header.opcode);
  const std::int32_t ahead = wire::psn_diff(packet.header.psn, rsp.expected_psn);
  if (ahead != 0) ++counters.out_of_sequence;
  rsp.expected_psn = wire::psn_add(packet.header.psn, 1);
  rsp.requests_received = true;
  if (shape.begins) {
    drop_message();
    rsp.offset = 0;
  } else if (ahead != 0 || rsp.message != shape.kind) {
    drop_message();
    return;
  }
  const bool fits =
      shape.ends ? packet.payload.size() <= rtr.mtu && (shape.begins || !packet.payload.empty())
                 : packet.payload.size() == rtr.mtu;
  if (shape.begins) rsp.message = shape.kind;
  if (!fits || !(shape.kind == RequestKind::kSend ? uc_send(packet) : uc_write(packet))) {
    drop_message();
    return;
  }
  if (rsp.message == RequestKind::kNone) return;  // the QP has failed
  rsp.offset += packet.payload.size();
  counters.received_bytes += packet.payload.size();
  if (shape.ends) uc_done(packet);
}

bool Connection::State::uc_send(const wire::Packet& packet) {
  if (!rsp.has_receive && !take_uc_receive()) return false;
  if (rsp.offset + packet.payload.size() > rsp.receive_length) {
    fail_receive(Status::kLocalLength);
  } else if (!packet.payload.empty() && host.scatter_receive(rsp.receive.sges, rsp.offset,
                                                             packet.payload) != MemoryResult::kOk) {
    fail_receive(Status::kLocalProtection);
  }
  return true;
}

bool Connection::State::uc_write(const wire::Packet& packet) {
  const wire::Opcode opcode = packet.header.opcode;
  const RequestShape shape = shape_of(opcode);
  if (shape.begins) {
    rsp.write = packet.header.reth;
    if (rsp.write.dma_length > kMaxMessage ||
        (rsp.write.dma_length > 0 &&
         host.check_region(rsp.write.rkey, rsp.write.virtual_address, rsp.write.dma_length,
                           kRemoteWrite) != MemoryResult::kOk)) {
      return false;
    }
  }
  const std::uint64_t after = rsp.offset + packet.payload.size();
  if (shape.ends ? after != rsp.write.dma_length : after >= rsp.write.dma_length) return false;
  if (wire::has_immediate(opcode) && !rsp.has_receive && !take_uc_receive()) return false;
  return packet.payload.empty() ||
         host.write_region(rsp.write.rkey, rsp.write.virtual_address + rsp.offset,
                           packet.payload) == MemoryResult::kOk;
}

bool Connection::State::take_uc_receive() {
  if (!host.take_receive(&rsp.receive)) return false;
  rsp.has_receive = true;
  rsp.receive_length = rsp.receive.length();
  return true;
}

void Connection::State::uc_done(const wire::Packet& packet) {
  const bool write = rsp.message == RequestKind::kWrite;
  const bool immediate = wire::has_immediate(packet.header.opcode);
  rsp.message = RequestKind::kNone;
  if (write && !immediate) return;
  rsp.has_receive = false;
  host.complete_receive({.wr_id = rsp.receive.wr_id,
                         .is_write = write,
                         .has_immediate = immediate,
                         .solicited = packet.header.solicited,
                         .immediate = immediate ? packet.header.immediate : 0,
                         .bytes = static_cast<std::uint32_t>(rsp.offset)});
}

}  // namespace ferry::transport
