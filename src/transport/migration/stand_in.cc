#include "transport/migration/stand_in.h"

#include <algorithm>
#include <unordered_map>

#include "port/slot.h"
#include "transport/stopped.h"
#include "transport/ud/datagram.h"

namespace ferry::transport {

using wire::MigrationType;

namespace {

constexpr Time kHintInterval = std::chrono::milliseconds(10);
// How long a stand-in is needed for datagrams, unless somebody ends it because their receiver has
// ended.
constexpr Time kForwarding = std::chrono::minutes(10);

}  // namespace

struct StandIn::State {
  struct Entry {
    StoppedEnd qp;
    bool peer_knows = false;
  };

  // The last hint of the new place to a sender of datagrams, who does not get one for each
  // datagram.
  struct Hint {
    port::Endpoint to;
    Time at{};
  };
  struct DatagramEntry {
    StoppedDatagram qp;
    Hint hint;
  };

  Send send;
  std::unordered_map<std::uint32_t, Entry> entries;  // by wire QPN, as it was at the old place
  std::unordered_map<std::uint32_t, DatagramEntry> datagrams;  // by wire QPN, too
  // After serve_slot(): what QPs without an entry have in common.
  std::optional<StoppedDatagram> slot;
  Hint slot_hint;
  bool committed = false;
  port::Endpoint new_location;
  std::uint32_t new_slot = 0;
  std::uint32_t new_epoch = 0;
  Time committed_at{};
  Counters counters;

  Time ends(const Entry& entry) const {
    const bool waits = entry.qp.peer_class == PeerClass::kFerry && !entry.peer_knows;
    return committed && !waits ? committed_at + entry.qp.paused_limit : kNever;
  }
  void transmit(const ControlPacket& answer) {
    send(answer.to, answer.header, {answer.payload.data(), answer.payload_size});
  }
  void handle(Entry& entry, const wire::Packet& packet, const port::Endpoint& from);
  void handle(const StoppedDatagram& qp, Hint& hint, const wire::Packet& packet,
              const port::Endpoint& from, Time now);
  bool redirect(const wire::Packet& packet, const port::Endpoint& from);
  void handle_unknown(const wire::Packet& packet, const port::Endpoint& from, Time now);
  std::uint32_t at_new_place(std::uint32_t qpn) const {
    return port::make_qpn(new_slot, port::index_of(qpn));
  }
  void send_moved(const StoppedDatagram& qp, const DatagramPlace& to,
                  wire::MigrationMessage message);
};

void StandIn::State::send_moved(const StoppedDatagram& qp, const DatagramPlace& to,
                                wire::MigrationMessage message) {
  std::array<std::byte, wire::kMigrationPayload> payload;
  message.type = MigrationType::kMoved;
  message.source_qpn = qp.virtual_qpn;
  message.epoch = qp.epoch;
  wire::encode(message, payload);
  wire::Header header;
  header.opcode = wire::Opcode::kMigration;
  header.dest_qpn = to.wire_qpn;
  send(to.endpoint, header, payload);
  ++counters.moved_sent;
}

// Answers LOCATE at once. Drops datagrams before the commit, and forwards them to the new place
// after it; there their sender looks as if it had moved, since they come from another address
// than its own.
void StandIn::State::handle(const StoppedDatagram& qp, Hint& hint, const wire::Packet& packet,
                            const port::Endpoint& from, Time now) {
  const wire::Header& header = packet.header;
  const std::uint32_t new_qpn = at_new_place(qp.place.wire_qpn);
  if (header.opcode == wire::Opcode::kMigration) {
    const auto message = wire::parse_migration(packet.payload);
    if (!message || message->type != MigrationType::kLocate) {
      ++counters.dropped;
      return;
    }
    send_moved(qp, {from, message->wire_qpn},
               {.echo = message->cookie,
                .wire_qpn = committed ? new_qpn : qp.place.wire_qpn,
                .location = committed ? new_location : qp.place.endpoint});
    return;
  }
  const bool moved = wire::has_origin(header.opcode);
  if (!committed || (!moved && wire::service_of(header.opcode) != wire::Service::kUd)) {
    ++counters.dropped;
    return;
  }
  wire::Header out = header;
  out.opcode = wire::has_immediate(header.opcode) ? wire::Opcode::kMovedSendOnlyImm
                                                  : wire::Opcode::kMovedSendOnly;
  out.dest_qpn = new_qpn;
  if (!moved) out.origin = {from.address, header.deth.source_qpn, 0};
  send(new_location, out, packet.payload);
  ++counters.forwarded;
  if (from == hint.to && now - hint.at < kHintInterval) return;
  hint = {from, now};
  send_moved(qp, {from, header.deth.source_qpn}, {.location = {qp.gid, 0}});
}

void StandIn::State::handle(Entry& entry, const wire::Packet& packet, const port::Endpoint& from) {
  StoppedEnd& qp = entry.qp;
  std::optional<wire::MigrationMessage> message;
  if (packet.header.opcode == wire::Opcode::kMigration) {
    message = wire::parse_migration(packet.payload);
  }
  const bool resume = message && message->type == MigrationType::kResume;
  if (resume) {
    if (!is_authentic(*message, qp) || !is_current(*message, qp)) {
      ++counters.dropped;
      return;
    }
    // The peer has moved as well: from now on its packets come from its new place.
    qp.peer = message->location;
    qp.peer_wire_qpn = message->wire_qpn;
    qp.peer_epoch = message->epoch;
    qp.peer_resumed = true;
    // The peer repeats RESUME until the QP acknowledges it, or we answer it by MOVED after the
    // commit.
    if (!committed) return;
  }
  std::optional<ControlPacket> answer;
  if (!resume) answer = answer_of(qp, packet, from);
  // A peer that does not know our cookie could not check a MOVED, so HELLO_ACK comes first.
  const bool hello_ack = answer && answer->header.opcode == wire::Opcode::kMigration;
  if (committed && (resume || (answer && !hello_ack))) {
    // An unmodified peer knows nothing of new places: the address and the QPN that it sends to have
    // moved along, and this is a late packet.
    if (qp.peer_class != PeerClass::kFerry) {
      ++counters.dropped;
      return;
    }
    answer = packet_with(qp,
                         {.type = MigrationType::kMoved,
                          .epoch = qp.epoch,
                          .wire_qpn = at_new_place(qp.wire_qpn),
                          .location = new_location},
                         qp.peer);
    ++counters.moved_sent;
  } else if (!answer) {
    // Another connection may use the QPN by now, or the handshake of this one was not over at the
    // stop.
    if (!redirect(packet, from)) ++counters.dropped;
    return;
  } else if (qp.peer_class != PeerClass::kFerry) {
    ++counters.rnr_naks_sent;
  } else if (answer->header.opcode == wire::Opcode::kRcAck) {
    ++counters.naks_sent;
  }
  transmit(*answer);
}

// Answers a HELLO to a QP that is not known here with MOVED. The answer is as long as the HELLO,
// goes to where that came from, and is itself never answered. Its receiver knows it by its own
// cookie. False: the packet is no such HELLO, or there was no committed() or no serve_slot() yet.
bool StandIn::State::redirect(const wire::Packet& packet, const port::Endpoint& from) {
  if (!committed || !slot || packet.header.opcode != wire::Opcode::kMigration) return false;
  const auto hello = wire::parse_migration(packet.payload);
  const std::uint32_t slot_of_asker = port::slot_of_udp_port(from.udp_port);
  if (!hello || hello->type != MigrationType::kHello || slot_of_asker > port::kMaxSlot) {
    return false;
  }
  const std::uint32_t qpn = packet.header.dest_qpn;
  std::array<std::byte, wire::kMigrationPayload> payload;
  wire::encode({.type = MigrationType::kMoved,
                .source_qpn = port::make_qpn(port::slot_of(slot->virtual_qpn), port::index_of(qpn)),
                .epoch = new_epoch,
                .echo = hello->cookie,
                .wire_qpn = at_new_place(qpn),
                .location = new_location},
               payload);
  wire::Header header;
  header.opcode = wire::Opcode::kMigration;
  header.dest_qpn = port::make_qpn(slot_of_asker, port::index_of(hello->source_qpn));
  header.psn = packet.header.psn;
  send(from, header, payload);
  ++counters.redirected;
  return true;
}

// Handles a packet to a QPN without an entry; the packet tells the service of the QP.
void StandIn::State::handle_unknown(const wire::Packet& packet, const port::Endpoint& from,
                                    Time now) {
  if (redirect(packet, from)) return;
  const std::uint32_t qpn = packet.header.dest_qpn;
  if (!committed || !slot || port::index_of(qpn) < port::kReservedIndices) {
    ++counters.dropped;
    return;
  }
  StoppedDatagram qp = *slot;
  qp.virtual_qpn = port::make_qpn(port::slot_of(qp.virtual_qpn), port::index_of(qpn));
  qp.place.wire_qpn = qpn;
  handle(qp, slot_hint, packet, from, now);
}

std::optional<Time> paused_limit_of(std::span<const std::byte> entry) {
  if (!entry.empty() && entry.front() == std::byte{StoppedDatagram::kKind}) return std::nullopt;
  wire::ByteReader in(entry);
  StoppedEnd qp;
  if (!qp.load(in)) return std::nullopt;
  return qp.paused_limit;
}

StandIn::StandIn(Send send) : state_(std::make_unique<State>()) {
  state_->send = std::move(send);
}
StandIn::~StandIn() = default;

void StandIn::serve_slot(const port::Endpoint& place, const port::Endpoint& origin) {
  StoppedDatagram& slot = state_->slot.emplace();
  slot.gid = origin.address;
  slot.virtual_qpn = port::make_qpn(port::slot_of_udp_port(origin.udp_port), 0);
  slot.place.endpoint = place;
}

bool StandIn::add(std::span<const std::byte> bytes, Time) {
  wire::ByteReader in(bytes);
  if (!bytes.empty() && bytes.front() == std::byte{StoppedDatagram::kKind}) {
    State::DatagramEntry entry;
    if (!entry.qp.load(in) || in.remaining() != 0) return false;
    return state_->datagrams.emplace(entry.qp.place.wire_qpn, entry).second;
  }
  State::Entry entry;
  if (!entry.qp.load(in) || in.remaining() != 0) return false;
  const std::uint32_t qpn = entry.qp.wire_qpn;
  return state_->entries.emplace(qpn, std::move(entry)).second;
}

void StandIn::handle_packet(const wire::Packet& packet, const port::Endpoint& from, Time now) {
  ++state_->counters.packets;
  if (const auto datagram = state_->datagrams.find(packet.header.dest_qpn);
      datagram != state_->datagrams.end()) {
    state_->handle(datagram->second.qp, datagram->second.hint, packet, from, now);
    return;
  }
  const auto entry = state_->entries.find(packet.header.dest_qpn);
  if (entry == state_->entries.end()) {
    state_->handle_unknown(packet, from, now);
    return;
  }
  state_->handle(entry->second, packet, from);
}

void StandIn::handle_timeout(Time now) {
  std::erase_if(state_->entries,
                [&](const auto& entry) { return state_->ends(entry.second) <= now; });
}

Time StandIn::next_deadline() const {
  Time at = kNever;
  for (const auto& [qpn, entry] : state_->entries) at = std::min(at, state_->ends(entry));
  return at;
}

void StandIn::committed(const port::Endpoint& new_location, std::uint32_t new_slot,
                        std::uint32_t epoch, Time now) {
  if (state_->committed && epoch < state_->new_epoch) return;
  if (!state_->committed) state_->committed_at = now;
  state_->committed = true;
  state_->new_location = new_location;
  state_->new_slot = new_slot;
  state_->new_epoch = epoch;
}

void StandIn::peer_knows(std::uint32_t virtual_qpn, Time) {
  // All entries are of one slot, and the index of a QPN never changes.
  auto& entries = state_->entries;
  if (entries.empty()) return;
  const auto entry = entries.find(
      port::make_qpn(port::slot_of(entries.begin()->first), port::index_of(virtual_qpn)));
  if (entry != entries.end() && entry->second.qp.virtual_qpn == virtual_qpn) {
    entry->second.peer_knows = true;
  }
}

std::optional<port::Endpoint> StandIn::standard_peer() const {
  for (const auto& [qpn, entry] : state_->entries) {
    if (entry.qp.peer_class == PeerClass::kUnmodified) return entry.qp.peer;
  }
  return std::nullopt;
}

bool StandIn::meets_strangers() const {
  return std::any_of(state_->entries.begin(), state_->entries.end(), [](const auto& entry) {
    return entry.second.qp.peer_class != PeerClass::kFerry;
  });
}

bool StandIn::expired(Time now) const {
  const bool forwards = !state_->datagrams.empty() && now < state_->committed_at + kForwarding;
  return state_->committed && !forwards &&
         std::all_of(state_->entries.begin(), state_->entries.end(),
                     [&](const auto& entry) { return state_->ends(entry.second) <= now; });
}

StandIn::Counters StandIn::counters() const {
  return state_->counters;
}

}  // namespace ferry::transport
