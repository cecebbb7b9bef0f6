#include <algorithm>

#include "port/slot.h"
#include "transport/ud/datagram.h"

// Where UD QPs are (docs/wire.md "Datagrams"): LOCATE, MOVED, and the form in which a QP that has
// moved sends. An answer is believed only if we asked and it comes from the place that we asked:
// its nonce proves that the sender has seen the question.
namespace ferry::transport {

using wire::MigrationMessage;
using wire::MigrationType;

namespace {

constexpr unsigned kAskRepeats = 6;  // over 63 ms with the default back-off
constexpr std::size_t kMaxAsks = 32, kMaxAnswers = 32;
// Packets that we receive make us ask only while fewer questions than this are open.
constexpr std::size_t kMaxAsksOfOthers = 16;

}  // namespace

bool Datagram::is_moved(const DatagramSource& us) const {
  return us.place.endpoint.address != us.gid || us.place.wire_qpn != virtual_qpn_;
}

bool Datagram::asking(const DatagramName& name) const {
  return std::any_of(asks_.begin(), asks_.end(), [&](const Ask& ask) { return ask.name == name; });
}

void Datagram::ask(const DatagramName& name, const DatagramPlace& to, bool for_class, Time now) {
  const std::size_t most = for_class ? kMaxAsks : kMaxAsksOfOthers;
  if (!settings_.enabled || asks_.size() >= most || asking(name)) return;
  std::uint64_t nonce = 0;
  while (nonce == 0) nonce = host_.random();
  asks_.push_back({.name = name,
                   .to = to,
                   .nonce = nonce,
                   .for_class = for_class,
                   .due = true,
                   .left = kAskRepeats,
                   .at = now + settings_.hello_first,
                   .delay = settings_.hello_first * 2});
}

bool Datagram::route(const DatagramName& name, const DatagramSource& us, Time now,
                     DatagramPlace* place, bool* as_moved) {
  *as_moved = false;
  if (host_.own_place(name.gid, name.qpn, place)) {
    *as_moved = settings_.enabled && is_moved(us);
    return true;
  }
  const LocationTable::Found found = locations_.find(name, now);
  *place = found.place;
  // The QPN of a standard NIC says nothing of a slot.
  if (!settings_.enabled) place->endpoint.udp_port = port::kRoceUdpPort;
  locations_.sends(name, place->endpoint);
  if (found.stale) ask(name, found.place, true, now);
  if (!settings_.enabled || !is_moved(us)) return true;
  if (found.peer_class == PeerClass::kUnknown) {
    ask(name, found.place, true, now);
    return !asking(name);  // when too many questions are open, the datagram goes without an answer
  }
  *as_moved = found.peer_class == PeerClass::kFerry;
  return true;
}

bool Datagram::send_message(MigrationMessage message, const DatagramPlace& to) {
  std::array<std::byte, wire::kMigrationPayload> payload;
  message.source_qpn = virtual_qpn_;
  wire::encode(message, payload);
  OutPacket out;
  out.header.opcode = wire::Opcode::kMigration;
  out.header.dest_qpn = to.wire_qpn;
  out.to = to.endpoint;
  out.source = OutPacket::Source::kBytes;
  out.bytes = payload.data();
  out.length = static_cast<std::uint32_t>(payload.size());
  return emit(out) != EmitResult::kNoRoom;
}

unsigned Datagram::transmit_messages() {
  unsigned sent = 0;
  DatagramSource us;
  while (!answers_.empty()) {
    const Answer& answer = answers_.back();
    if (host_.place_towards(answer.to.endpoint.address, &us)) {
      if (!send_message({.type = MigrationType::kMoved,
                         .epoch = epoch_,
                         .echo = answer.nonce,
                         .wire_qpn = us.place.wire_qpn,
                         .location = us.place.endpoint},
                        answer.to)) {
        return sent;
      }
      ++sent;
    }
    answers_.pop_back();
  }
  for (Ask& ask : asks_) {
    if (!ask.due || !host_.place_towards(ask.to.endpoint.address, &us)) continue;
    if (!send_message(
            {.type = MigrationType::kLocate, .cookie = ask.nonce, .wire_qpn = us.place.wire_qpn},
            ask.to)) {
      return sent;
    }
    ask.due = false;
    ++sent;
  }
  return sent;
}

void Datagram::handle_message(const wire::Packet& packet, const port::Endpoint& from, Time now) {
  const auto message = wire::parse_migration(packet.payload);
  if (!message) {
    ++counters_.dropped_forged;
    return;
  }
  if (message->type == MigrationType::kLocate) {
    if (answers_.size() < kMaxAnswers) {
      answers_.push_back({{from, message->wire_qpn}, message->cookie});
    }
    return;
  }
  if (message->type != MigrationType::kMoved) return;
  if (message->echo == 0) {
    // A stand-in hints that we sent a datagram to an old place. We believe only the name of the QP,
    // and only from a place to which we have just sent for this name.
    const DatagramName name{message->location.address, message->source_qpn};
    if (!locations_.has_sent(name, from)) {
      ++counters_.dropped_forged;
      return;
    }
    ask(name, locations_.find(name, now).place, false, now);
    return;
  }
  const auto ask = std::find_if(asks_.begin(), asks_.end(), [&](const Ask& open) {
    return open.nonce == message->echo && open.to.endpoint == from &&
           open.name.qpn == message->source_qpn;
  });
  if (ask == asks_.end()) {
    ++counters_.dropped_forged;
    return;
  }
  const DatagramPlace place{message->location, message->wire_qpn};
  if (place.endpoint.address.is_ipv4() == from.address.is_ipv4()) {
    locations_.learn(ask->name, place, message->epoch, now);
  }
  asks_.erase(ask);
  held_ = false;
}

void Datagram::handle_timeout(Time now) {
  if (stopped_) return;
  for (auto ask = asks_.begin(); ask != asks_.end();) {
    if (ask->at > now) {
      ++ask;
    } else if (--ask->left > 0) {
      ask->due = true;
      ask->at = now + ask->delay;
      ask->delay = std::min(ask->delay * 2, settings_.hello_last);
      ++ask;
    } else {
      if (ask->for_class) locations_.unanswered(ask->name, now);
      host_.seek({ask->name.gid, port::udp_port_of_qpn(ask->name.qpn)});
      ask = asks_.erase(ask);
      held_ = false;
    }
  }
}

// Each UD QP of the RNIC is told, and all share the table: a repetition changes nothing.
void Datagram::located(const port::Endpoint& name, const port::Endpoint& location,
                       std::uint32_t epoch, Time now) {
  if (!stopped_ && settings_.enabled) locations_.relocate(name, location, epoch, now);
}

Deadlines Datagram::deadlines() const {
  Deadlines at;
  if (stopped_) return at;
  for (const Ask& ask : asks_) at.strict = std::min(at.strict, ask.at);
  return at;
}

// --- Stopping and going on ----------------------------------------------------------------------

void Datagram::stop(Time) {
  if (stopped_) return;
  stopped_ = true;
  if (receiving()) ++epoch_;
  asks_.clear();
  answers_.clear();
  held_ = false;
}

void Datagram::resume(std::uint32_t, bool rollback, Time) {
  if (!stopped_) return;
  stopped_ = false;
  if (rollback && receiving()) ++epoch_;
}

}  // namespace ferry::transport
