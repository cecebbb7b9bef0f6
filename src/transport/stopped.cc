#include "transport/stopped.h"

#include "wire/psn.h"

namespace ferry::transport {
namespace {

constexpr std::uint8_t kEntryVersion = 3;  // 1 had no rnr_timer; 2 is a datagram QP (datagram.h)

}  // namespace

bool is_authentic(const wire::MigrationMessage& message, const StoppedEnd& qp) {
  return qp.peer_class == PeerClass::kFerry && message.source_qpn == qp.peer_qpn &&
         message.mac ==
             wire::mac_of(message, qp.virtual_qpn, wire::mac_key(qp.peer_cookie, qp.cookie));
}

bool is_current(const wire::MigrationMessage& resume, const StoppedEnd& qp) {
  if (resume.epoch != qp.peer_epoch || !qp.peer_resumed) return resume.epoch >= qp.peer_epoch;
  return resume.location == qp.peer && resume.wire_qpn == qp.peer_wire_qpn;
}

ControlPacket packet_with(const StoppedEnd& qp, wire::MigrationMessage message,
                          const port::Endpoint& to) {
  using Type = wire::MigrationType;
  ControlPacket answer;
  answer.to = to;
  answer.header.opcode =
      message.type == Type::kNakStopped ? wire::Opcode::kRcAck : wire::Opcode::kMigration;
  answer.header.aeth = {wire::syndrome::kNakStopped, qp.msn};
  answer.header.dest_qpn = qp.peer_wire_qpn;
  answer.header.psn = wire::psn_sub(qp.expected_psn, 1);
  message.source_qpn = qp.virtual_qpn;
  if (message.type != Type::kHello && message.type != Type::kHelloAck &&
      message.type != Type::kHelloDone) {
    message.mac = wire::mac_of(message, qp.peer_qpn, wire::mac_key(qp.cookie, qp.peer_cookie));
  }
  wire::encode(message, answer.payload);
  answer.payload_size = answer.payload.size();
  return answer;
}

std::optional<ControlPacket> answer_of(const StoppedEnd& qp, const wire::Packet& packet,
                                       const port::Endpoint& from) {
  if (!comes_from(from, qp.peer, qp.peer_class)) return std::nullopt;
  const bool request = wire::is_request(packet.header.opcode);
  if (qp.peer_class != PeerClass::kFerry) {
    // A NAK with PSN p acknowledges all before p, so p may not be past the saved ePSN.
    const wire::Service service = wire::service_of(packet.header.opcode);
    if (service != wire::Service::kRc && service != wire::Service::kXrc) return std::nullopt;
    if (!request || !qp.gets_rnr_naks || wire::psn_diff(packet.header.psn, qp.expected_psn) > 0) {
      return std::nullopt;
    }
    ControlPacket answer;
    answer.to = qp.peer;
    answer.header.opcode = wire::in_service(service, wire::Opcode::kRcAck);
    answer.header.dest_qpn = qp.peer_wire_qpn;
    answer.header.psn = packet.header.psn;
    answer.header.aeth = {static_cast<std::uint8_t>(wire::syndrome::kRnrNak | qp.rnr_timer),
                          qp.msn};
    return answer;
  }
  if (!request) {
    if (packet.header.opcode != wire::Opcode::kMigration) return std::nullopt;
    const auto message = wire::parse_migration(packet.payload);
    if (!message || message->type != wire::MigrationType::kHello ||
        message->source_qpn != qp.peer_qpn) {
      return std::nullopt;
    }
    if (message->echo != qp.cookie) {
      return packet_with(
          qp,
          {.type = wire::MigrationType::kHelloAck, .cookie = qp.cookie, .echo = message->cookie},
          qp.peer);
    }
  }
  return packet_with(qp, {.type = wire::MigrationType::kNakStopped, .epoch = qp.epoch}, qp.peer);
}

void StoppedEnd::save(wire::ByteWriter& out) const {
  out.put(kEntryVersion);
  out.put(peer_class);
  for (const std::uint32_t value :
       {virtual_qpn, wire_qpn, peer_qpn, peer_wire_qpn, epoch, expected_psn, next_psn, msn}) {
    out.put(value);
  }
  out.put(peer_epoch);
  out.put(static_cast<std::uint8_t>(peer_resumed));
  out.put(cookie);
  out.put(peer_cookie);
  out.put(static_cast<std::int64_t>(paused_limit.count()));
  out.put(static_cast<std::uint8_t>(gets_rnr_naks));
  out.put(rnr_timer);
  out.put(peer);
}

bool StoppedEnd::load(wire::ByteReader& in) {
  if (in.get<std::uint8_t>() != kEntryVersion) return false;
  const auto class_code = in.get<std::uint8_t>();
  if (class_code > static_cast<std::uint8_t>(PeerClass::kUnmodified)) return false;
  peer_class = static_cast<PeerClass>(class_code);
  for (std::uint32_t* value : {&virtual_qpn, &wire_qpn, &peer_qpn, &peer_wire_qpn, &epoch,
                               &expected_psn, &next_psn, &msn}) {
    *value = in.get<std::uint32_t>();
    if (value != &epoch && *value > wire::kPsnMask) return false;
  }
  peer_epoch = in.get<std::uint32_t>();
  const auto resumed = in.get<std::uint8_t>();
  if (resumed > 1) return false;
  peer_resumed = resumed == 1;
  cookie = in.get<std::uint64_t>();
  peer_cookie = in.get<std::uint64_t>();
  const auto limit = in.get<std::int64_t>();
  paused_limit = Time(limit);
  const auto naks = in.get<std::uint8_t>();
  rnr_timer = in.get<std::uint8_t>();
  if (naks > 1 || rnr_timer > wire::syndrome::kValueMask) return false;
  gets_rnr_naks = naks == 1;
  peer = in.get_endpoint();
  return in.ok() && limit >= 0 && paused_limit < std::chrono::hours(24 * 365);
}

}  // namespace ferry::transport
