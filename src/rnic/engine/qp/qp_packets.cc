#include <cerrno>
#include <cstring>

#include "rnic/engine/engine.h"
#include "rnic/engine/qp/queue_pair.h"
#include "rnic/memory/copy.h"
#include "transport/movable.h"
#include "wire/icrc.h"

// The packets that a QP receives and sends, and how many of them may be under way.
namespace ferry::rnic {

using transport::EmitResult;
using transport::MemoryResult;

void QueuePair::handle_packet(const wire::Packet& packet, const port::Endpoint& from,
                              transport::Time now) {
  if (transport::is_migration(packet.header) ||
      (transport::kMovable && pause_stage_ != PauseStage::kNone)) {
    return handle_in_pause(packet, from, now);
  }
  last_packet_ = now;
  transport_->handle_packet(packet, from, now);
}

void QueuePair::handle_in_pause(const wire::Packet& packet, const port::Endpoint& from,
                                transport::Time now) {
  transport_->handle_packet(packet, from, now);
  if (transport::is_migration(packet.header)) {
    const bool paused = transport_->status().migration == transport::MigrationState::kPaused;
    if (paused && pause_stage_ != PauseStage::kPaused) {
      // If the peer stops again before its first packet from the new place, the pause goes on.
      if (pause_stage_ == PauseStage::kNone) pause_began_ = last_packet_;
      pause_stage_ = PauseStage::kPaused;
    } else if (!paused && pause_stage_ == PauseStage::kPaused) {
      pause_stage_ = PauseStage::kResumed;
    }
    return;
  }
  if (pause_stage_ == PauseStage::kPaused) return;  // a late packet from the old place
  if (pause_stage_ == PauseStage::kResumed && pause_began_ != transport::Time{0}) {
    last_pause_ns_ = static_cast<std::uint64_t>((now - pause_began_).count());
  }
  pause_stage_ = PauseStage::kNone;
  last_packet_ = now;
}

EmitResult QueuePair::emit(const transport::OutPacket& packet) {
  using Source = transport::OutPacket::Source;
  Lane* lane = is_datagram() ? &engine_.lanes()[lane_of(packet.to.address)] : lane_;
  if (lane == nullptr || lane->port == nullptr) return EmitResult::kNoRoom;
  port::Port& port = *lane->port;
  const bool paced = is_paced() && wire::is_request(packet.header.opcode);
  if (paced && !pacer_.ready(engine_.now())) return EmitResult::kNoRoom;
  std::byte* memory = nullptr;
  if (packet.source == Source::kRegion && packet.length > 0) {
    memory = region(packet.rkey, packet.address, packet.length, transport::kRemoteRead);
    if (memory == nullptr) return EmitResult::kRemoteError;
  }
  if (packet.hop_limit != 0 && !port.use_multicast_hops(packet.hop_limit)) {
    return EmitResult::kNoRoom;
  }
  const std::size_t size = wire::packet_size(packet.header.opcode, packet.length);
  std::uint16_t identification = 0;
  const std::span<std::byte> out = port.reserve(packet.to, size, &identification);
  if (out.empty()) return EmitResult::kNoRoom;
  wire::encode_header(packet.header, packet.length, out);
  std::byte* payload = out.data() + wire::header_size(packet.header.opcode);
  EmitResult result = EmitResult::kOk;
  switch (packet.source) {
    case Source::kNone: break;
    case Source::kBytes: std::memcpy(payload, packet.bytes, packet.length); break;
    case Source::kSges:
      if (gather(packet.sges, packet.offset, payload, packet.length) != MemoryResult::kOk) {
        result = EmitResult::kLocalError;
      }
      break;
    case Source::kRegion:
      if (!copy_from_application(payload, memory, packet.length)) result = EmitResult::kRemoteError;
      break;
  }
  if (result != EmitResult::kOk) {
    port.unreserve();
    return result;
  }
  wire::seal(out, port.local(), packet.to, identification);
  if (paced) pacer_.charge(engine_.now(), size);
  return EmitResult::kOk;
}

void QueuePair::handle_timeout(transport::Time now) {
  if (pacer_.waits_until() <= now) pacer_.wake();
  if (transport_->next_deadline() <= now) transport_->handle_timeout(now);
}

void QueuePair::seek(const port::Endpoint& name) {
  engine_.seeker().seek(name, engine_.now());
}

int QueuePair::limit_rate(const ibv_qp_rate_limit_attr& wanted) {
  if (engine_.abandoned()) return ENODEV;
  Engine::Lock lock(engine_);
  if (transport_->state() != transport::QpState::kRts || init_.type == IBV_QPT_XRC_RECV ||
      wanted.comp_mask != 0 || wanted.rate_limit > Pacer::kMaxRate ||
      (wanted.rate_limit == 0 && (wanted.max_burst_sz != 0 || wanted.typical_pkt_sz != 0))) {
    return EINVAL;
  }
  pacer_.set(wanted.rate_limit, wanted.max_burst_sz);
  engine_.touch(this);
  engine_.transmit(engine_.now());
  return 0;
}

std::int64_t QueuePair::window(const port::Endpoint& to) const {
  if (lane_ == nullptr || lane_->port == nullptr) return 0;
  const std::int64_t outstanding = accounts_at(to) ? destination_->outstanding : 0;
  return static_cast<std::int64_t>(lane_->port->window_bytes()) - outstanding;
}

void QueuePair::account(const port::Endpoint& to, std::int64_t bytes) {
  if (!accounts_at(to)) return account_elsewhere(to, bytes);
  outstanding_ += bytes;
  destination_->outstanding += bytes;
}

// The peer has moved, so what is outstanding counts at its new endpoint from now on.
void QueuePair::account_elsewhere(const port::Endpoint& to, std::int64_t bytes) {
  const std::int64_t outstanding = outstanding_;
  drop_destination();
  destination_ = engine_.destinations().use(to);
  account(to, outstanding + bytes);
}

}  // namespace ferry::rnic
