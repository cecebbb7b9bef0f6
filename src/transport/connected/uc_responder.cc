#include "transport/connected/uc_responder.h"

#include "wire/psn.h"

namespace ferry::transport {

void UcResponder::drop_message() {
  if (stream_.message != RequestKind::kNone) ++counters().dropped_messages;
  stream_.message = RequestKind::kNone;
}

void UcResponder::fail_receive(Status status) {
  stream_.end_receive(status);
  errors_.flush_all();
}

void UcResponder::handle(const wire::Packet& packet) {
  const RequestShape shape = shape_of(packet.header.opcode);
  const std::int32_t ahead = wire::psn_diff(packet.header.psn, stream_.expected_psn);
  if (ahead != 0) ++counters().out_of_sequence;
  stream_.expected_psn = wire::psn_add(packet.header.psn, 1);
  stream_.requests_received = true;
  if (shape.begins) {
    drop_message();
    stream_.offset = 0;
  } else if (ahead != 0 || stream_.message != shape.kind) {
    drop_message();
    return;
  }
  const bool fits = shape.ends ? packet.payload.size() <= stream_.qp.rtr.mtu &&
                                     (shape.begins || !packet.payload.empty())
                               : packet.payload.size() == stream_.qp.rtr.mtu;
  if (shape.begins) stream_.message = shape.kind;
  if (!fits || !(shape.kind == RequestKind::kSend ? receive_send(packet) : receive_write(packet))) {
    drop_message();
    return;
  }
  if (stream_.message == RequestKind::kNone) return;  // fail_receive() was called
  stream_.offset += packet.payload.size();
  counters().received_bytes += packet.payload.size();
  if (shape.ends) message_done(packet);
}

bool UcResponder::receive_send(const wire::Packet& packet) {
  if (!stream_.has_receive && !take_receive()) return false;
  if (stream_.offset + packet.payload.size() > stream_.receive_length) {
    fail_receive(Status::kLocalLength);
  } else if (!packet.payload.empty() &&
             host().scatter_receive(stream_.receive.sges, stream_.offset, packet.payload) !=
                 MemoryResult::kOk) {
    fail_receive(Status::kLocalProtection);
  }
  return true;
}

bool UcResponder::receive_write(const wire::Packet& packet) {
  const wire::Opcode opcode = packet.header.opcode;
  const RequestShape shape = shape_of(opcode);
  if (shape.begins) {
    stream_.write = packet.header.reth;
    if (stream_.write.dma_length > kMaxMessage ||
        (stream_.write.dma_length > 0 &&
         host().check_region(stream_.write.rkey, stream_.write.virtual_address,
                             stream_.write.dma_length, kRemoteWrite) != MemoryResult::kOk)) {
      return false;
    }
  }
  const std::uint64_t after = stream_.offset + packet.payload.size();
  if (shape.ends ? after != stream_.write.dma_length : after >= stream_.write.dma_length)
    return false;
  if (wire::has_immediate(opcode) && !stream_.has_receive && !take_receive()) return false;
  return packet.payload.empty() ||
         host().write_region(stream_.write.rkey, stream_.write.virtual_address + stream_.offset,
                             packet.payload) == MemoryResult::kOk;
}

bool UcResponder::take_receive() {
  if (!host().take_receive(&stream_.receive)) return false;
  stream_.begin_receive();
  return true;
}

void UcResponder::message_done(const wire::Packet& packet) {
  const bool write = stream_.message == RequestKind::kWrite;
  const bool immediate = wire::has_immediate(packet.header.opcode);
  stream_.message = RequestKind::kNone;
  if (write && !immediate) return;
  stream_.has_receive = false;
  host().complete_receive({.wr_id = stream_.receive.wr_id,
                           .is_write = write,
                           .has_immediate = immediate,
                           .solicited = packet.header.solicited,
                           .immediate = immediate ? packet.header.immediate : 0,
                           .bytes = static_cast<std::uint32_t>(stream_.offset)});
}

}  // namespace ferry::transport
