#include "transport/ud/datagram.h"

#include <array>
#include <bit>
#include <cerrno>

#include "port/slot.h"
#include "transport/partition.h"
#include "wire/grh.h"
#include "wire/psn.h"

namespace ferry::transport {

using wire::Opcode;

namespace {

constexpr std::uint32_t kMulticastQpn = 0xFFFFFF;
constexpr std::uint32_t kOwnQkey = 1u << 31;

// The service level that mlx5 reports with a RoCEv2 datagram: 2 over IPv4, 1 over IPv6. UCX relies
// on it.
std::uint8_t service_level(const port::Address& source) {
  return source.is_ipv4() ? 2 : 1;
}

}  // namespace

Datagram::Datagram(Host& host, LocationTable& locations, const QueueLimits& limits,
                   const MigrationSettings& settings, std::uint32_t virtual_qpn)
    : host_(host),
      locations_(locations),
      limits_(limits),
      settings_(settings),
      virtual_qpn_(virtual_qpn),
      queue_(limits.max_send_wr, limits.max_send_sge, limits.max_inline),
      addresses_(std::bit_ceil(std::max<std::size_t>(limits.max_send_wr, 1))),
      address_mask_(addresses_.size() - 1) {
  receive_.sges.reserve(limits.max_receive_sge);
}

// --- States -------------------------------------------------------------------------------------

void Datagram::reset() {
  queue_.clear();
  asks_.clear();
  answers_.clear();
  held_ = false;
  state_ = QpState::kReset;
}

void Datagram::init() {
  state_ = QpState::kInit;
}

void Datagram::to_rtr(const RtrAttributes& attributes, Time) {
  mtu_ = attributes.mtu;
  state_ = QpState::kRtr;
}

void Datagram::to_rts(const RtsAttributes& attributes, Time) {
  next_psn_ = attributes.next_psn & wire::kPsnMask;
  state_ = QpState::kRts;
}

// A datagram is complete once it is sent, so nothing needs to drain.
void Datagram::set_sqd(bool draining) {
  state_ = draining ? QpState::kSqd : QpState::kRts;
  if (draining) host_.raise(Host::Event::kSqDrained);
}

void Datagram::to_error(Time) {
  state_ = QpState::kError;
  flush_sends();
  host_.flush_receives();
}

void Datagram::flush_sends() {
  while (!queue_.empty()) complete_head(Status::kFlush);
  held_ = false;
}

TransportStatus Datagram::status() const {
  TransportStatus status;
  status.state = state_;
  status.migration = stopped_ ? MigrationState::kStopped : MigrationState::kNone;
  status.virtual_qpn = status.wire_qpn = virtual_qpn_;
  status.epoch = epoch_;
  status.next_psn = status.first_unacked_psn = next_psn_;
  status.counters = counters_;
  return status;
}

// --- Sending ------------------------------------------------------------------------------------

int Datagram::post_send(const SendRequest& request) {
  if (state_ < QpState::kRts || request.datagram == nullptr || request.length > kMaxMessage ||
      (request.operation != Operation::kSend && request.operation != Operation::kSendImm)) {
    return EINVAL;
  }
  if (request.inline_data != nullptr ? request.length > limits_.max_inline
                                     : request.sge_count > limits_.max_send_sge) {
    return EINVAL;
  }
  if (state_ == QpState::kError || state_ == QpState::kSqe) {
    host_.complete_send(
        {.wr_id = request.wr_id, .status = Status::kFlush, .operation = request.operation});
    return 0;
  }
  const std::uint64_t index = queue_.tail();
  if (!queue_.push(request)) return ENOMEM;
  addresses_[index & address_mask_] = *request.datagram;
  return 0;
}

void Datagram::take_back(std::uint64_t posted) {
  queue_.truncate(posted);
}

void Datagram::complete_head(Status status) {
  const Wqe& wqe = queue_.at(queue_.head());
  const SendCompletion completion{.wr_id = wqe.wr_id, .status = status, .operation = wqe.operation};
  const bool told = wqe.signaled || status != Status::kSuccess;
  queue_.pop();
  if (told) host_.complete_send(completion);
}

EmitResult Datagram::emit(OutPacket& packet) {
  const EmitResult result = host_.emit(packet);
  if (result == EmitResult::kOk) {
    ++counters_.sent_packets;
    counters_.sent_bytes += packet.length;
  }
  return result;
}

Datagram::Sent Datagram::send_head(Time now) {
  const std::uint64_t index = queue_.head();
  const Wqe& wqe = queue_.at(index);
  const DatagramAddress& address = addresses_[index & address_mask_];
  DatagramSource us;
  if (wqe.length > mtu_) {
    complete_head(Status::kLocalLength);
    return Sent::kFailed;
  }
  if (!host_.place_towards(address.destination, &us)) {
    complete_head(Status::kLocalQpOperation);
    return Sent::kFailed;
  }
  const bool multicast = address.destination.is_multicast();
  DatagramPlace place{{address.destination, port::kRoceUdpPort}, kMulticastQpn};
  // We do not know of what kind the members of a group are, and those of our kind must learn our
  // virtual name.
  bool as_moved = multicast && settings_.enabled && is_moved(us);
  if (!multicast && !route({address.destination, address.qpn}, us, now, &place, &as_moved)) {
    return Sent::kHeld;
  }

  OutPacket out;
  const bool immediate = wqe.operation == Operation::kSendImm;
  out.header.opcode = as_moved ? (immediate ? Opcode::kMovedSendOnlyImm : Opcode::kMovedSendOnly)
                               : (immediate ? Opcode::kUdSendOnlyImm : Opcode::kUdSendOnly);
  out.header.dest_qpn = place.wire_qpn;
  out.header.psn = next_psn_;
  out.header.solicited = wqe.solicited;
  out.header.immediate = wqe.immediate;
  out.header.deth.qkey = (address.qkey & kOwnQkey) != 0 ? qkey_ : address.qkey;
  out.header.deth.source_qpn = us.place.wire_qpn;
  out.header.origin = {us.gid, virtual_qpn_, epoch_};
  out.to = place.endpoint;
  if (multicast) out.hop_limit = std::max<std::uint8_t>(address.hop_limit, 1);
  out.length = static_cast<std::uint32_t>(wqe.length);
  if (wqe.is_inline) {
    out.source = OutPacket::Source::kBytes;
    out.bytes = queue_.inline_data(index);
  } else if (wqe.length > 0) {
    out.source = OutPacket::Source::kSges;
    out.sges = queue_.sges(index);
  }
  switch (emit(out)) {
    case EmitResult::kNoRoom: return Sent::kNoRoom;
    case EmitResult::kOk: break;
    default: complete_head(Status::kLocalProtection); return Sent::kFailed;
  }
  next_psn_ = wire::psn_add(next_psn_, 1);
  complete_head(Status::kSuccess);
  return Sent::kYes;
}

unsigned Datagram::transmit(Time now, unsigned budget) {
  if (stopped_) return 0;
  unsigned sent = transmit_messages();
  held_ = false;
  while (sent < budget && sending()) {
    switch (send_head(now)) {
      case Sent::kYes: ++sent; break;
      case Sent::kNoRoom: return sent;
      case Sent::kHeld: held_ = true; return sent + transmit_messages();
      case Sent::kFailed:
        // Clause 10.3.1.5: the send queue stops, the receive queue does not.
        state_ = QpState::kSqe;
        flush_sends();
        break;
    }
  }
  return sent;
}

bool Datagram::has_work() const {
  if (stopped_) return false;
  if (!answers_.empty()) return true;
  for (const Ask& ask : asks_) {
    if (ask.due) return true;
  }
  return sending() && !held_;
}

// --- Receiving ----------------------------------------------------------------------------------

void Datagram::handle_packet(const wire::Packet& packet, const port::Endpoint& from, Time now) {
  if (!receiving() || stopped_) return;
  if (!in_our_partition(packet.header)) {
    ++counters_.dropped_forged;
    return;
  }
  if (packet.header.opcode == Opcode::kMigration) {
    if (settings_.enabled) handle_message(packet, from, now);
    return;
  }
  DatagramSource us;
  if (host_.place_towards(from.address, &us)) receive(packet, from, us.gid, now);
}

void Datagram::handle_multicast(const wire::Packet& packet, const port::Endpoint& from,
                                const port::Address& group, Time now) {
  if (!receiving() || stopped_) return;
  if (!in_our_partition(packet.header)) {
    ++counters_.dropped_forged;
    return;
  }
  receive(packet, from, group, now);
}

void Datagram::receive(const wire::Packet& packet, const port::Endpoint& from,
                       const port::Address& destination, Time now) {
  const wire::Header& header = packet.header;
  const bool moved = wire::has_origin(header.opcode);
  if ((!moved && wire::service_of(header.opcode) != wire::Service::kUd) ||
      (moved && !settings_.enabled)) {
    return;
  }
  // Clause 10.2.5: a datagram with another Q_Key raises no event; it is only dropped and counted.
  if (header.deth.qkey != qkey_) {
    ++counters_.dropped_qkey;
    return;
  }
  DatagramName source{from.address, header.deth.source_qpn};
  if (moved) {
    source = {header.origin.gid, header.origin.qpn};
    if (source.gid.is_ipv4() != destination.is_ipv4()) return;
    // The sender says that it has moved. Its old place must confirm that before we believe it.
    if (header.origin.epoch > locations_.epoch_of(source)) {
      ask(source, locations_.find(source, now).place, false, now);
    }
  }
  deliver(packet, source, destination);
}

void Datagram::deliver(const wire::Packet& packet, const DatagramName& source,
                       const port::Address& destination) {
  const std::size_t bytes = wire::kGrhSize + packet.payload.size();
  if (packet.payload.size() > mtu_) return;
  ReceiveRequest& receive = receive_;
  if (!host_.take_receive(&receive)) {
    ++counters_.dropped_messages;
    return;
  }
  Status status = Status::kSuccess;
  if (bytes > receive.length()) {
    status = Status::kLocalLength;
  } else {
    // The GRH has the length of a packet without OriginETH, as a QP that has not moved sends it.
    const wire::Opcode opcode = wire::has_immediate(packet.header.opcode)
                                    ? wire::Opcode::kUdSendOnlyImm
                                    : wire::Opcode::kUdSendOnly;
    std::array<std::byte, wire::kGrhSize> grh;
    wire::encode_grh(source.gid, destination, wire::packet_size(opcode, packet.payload.size()),
                     grh);
    if (host_.scatter_receive(receive.sges, 0, grh) != MemoryResult::kOk ||
        (!packet.payload.empty() &&
         host_.scatter_receive(receive.sges, grh.size(), packet.payload) != MemoryResult::kOk)) {
      status = Status::kLocalProtection;
    }
  }
  if (status != Status::kSuccess) {
    host_.complete_receive({.wr_id = receive.wr_id, .status = status});
    to_error({});
    return;
  }
  ++counters_.received_packets;
  counters_.received_bytes += packet.payload.size();
  const bool immediate = wire::has_immediate(packet.header.opcode);
  host_.complete_receive({.wr_id = receive.wr_id,
                          .has_immediate = immediate,
                          .solicited = packet.header.solicited,
                          .immediate = immediate ? packet.header.immediate : 0,
                          .bytes = static_cast<std::uint32_t>(bytes),
                          .source_qpn = source.qpn,
                          .has_grh = true,
                          .service_level = service_level(source.gid)});
}

}  // namespace ferry::transport
