#include "transport/migration/migration.h"

#include "port/slot.h"

namespace ferry::transport {

using wire::MigrationMessage;
using wire::MigrationType;

namespace {

template <typename Archive, typename T>
void visit_flags(Archive& a, T& qp) {
  a.value(qp.migration.stopped);
  a.value(qp.migration.paused);
  a.value(qp.migration.resume_pending);
  a.value(qp.path.peer_class, PeerClass::kUnmodified);
}

template <typename Archive, typename T>
void visit_epochs(Archive& a, T& epochs) {
  a.value(epochs.own);
  a.value(epochs.peer);
  a.value(epochs.peer_resumed);
}

}  // namespace

void MigrationMemory::forget() {
  handshake.forget();
  epochs = {};
  stopped_answer.reset();
}

// --- Receiving ----------------------------------------------------------------------------------

bool Migration::handle(const wire::Packet& packet, const port::Endpoint& from, Time now) {
  const auto message = wire::parse_migration(packet.payload);
  if (!message) return false;
  // NAK_STOPPED is an ACK with a payload; the others have an opcode of their own.
  if ((message->type == MigrationType::kNakStopped) !=
      (packet.header.opcode == wire::Opcode::kRcAck)) {
    return false;
  }
  switch (message->type) {
    case MigrationType::kHello:
    case MigrationType::kHelloAck:
    case MigrationType::kHelloDone: return handshake_.handle(*message, from);
    default: break;
  }
  if (message->type == MigrationType::kMoved && message->echo != 0 && !qp_.path.ferry()) {
    return handle_redirect(*message, from, now);
  }
  if (!is_authentic(*message, own_end_.description())) {
    // The peer knows us, but we do not know it: a part of the handshake was lost. HELLO is sent at
    // once, since our retries may run out before its back-off ends.
    if (!qp_.path.ferry() && from == qp_.path.peer && handshake_.is_peer(message->source_qpn)) {
      qp_.migration.due |= kDueHello;
    }
    return false;
  }
  qp_.path.unanswered = 0;
  switch (message->type) {
    case MigrationType::kResume: return resumption_.handle_resume(*message, now);
    case MigrationType::kResumeAck: return resumption_.handle_resume_ack(*message, now);
    case MigrationType::kPause:
    case MigrationType::kNakStopped:
    case MigrationType::kMoved: return handle_peer_stop(*message, now);
    case MigrationType::kHello:
    case MigrationType::kHelloAck:
    case MigrationType::kHelloDone:      // handled above: they have no MAC
    case MigrationType::kLocate: break;  // for UD QPs only
  }
  return false;
}

// A stop from which the peer has resumed is over: its late messages change nothing.
bool Migration::handle_peer_stop(const MigrationMessage& message, Time now) {
  if (message.epoch < epochs_.peer) return false;
  if (message.epoch == epochs_.peer && epochs_.peer_resumed) return false;
  if (message.epoch > epochs_.peer) {
    epochs_.peer = message.epoch;
    epochs_.peer_resumed = false;
    pause(now);
  }
  if (message.type != MigrationType::kMoved) return true;
  Path& path = qp_.path;
  if (path.peer == message.location && path.peer_wire_qpn == message.wire_qpn) return true;
  path.peer = message.location;
  path.peer_wire_qpn = message.wire_qpn;
  epochs_.located = true;
  timers_.probe.start(now, qp_.settings.probe_first);
  // RESUME is repeated also when the limit had ended its repetition: the peer at the new place
  // drops our probes.
  if (qp_.migration.resume_pending) resumption_.repeat_from_now(now);
  return true;
}

// The limit counts from the moment at which this stop of the peer became known; nothing extends it.
void Migration::pause(Time now) {
  streams_.cancel_requests();
  qp_.migration.paused = true;
  timers_.probe.start(now + qp_.settings.probe_first, qp_.settings.probe_first);
  timers_.limit_at = now + qp_.settings.paused_limit;
}

// Handles MOVED of a stand-in that has no entry for this pair: the peer's QP was made after its
// RNIC had left the place in its name. The echoed cookie shows that the message answers our HELLO,
// and we hear only the place that we send to. Whoever is there could keep our HELLO from the peer
// in any case, and can do no more by this.
bool Migration::handle_redirect(const MigrationMessage& message, const port::Endpoint& from,
                                Time now) {
  if (from != qp_.path.peer || message.echo != handshake_.cookies().own ||
      !handshake_.is_peer(message.source_qpn)) {
    return false;
  }
  if (message.epoch <= epochs_.place) return false;
  if (port::index_of(message.wire_qpn) != port::index_of(qp_.path.peer_wire_qpn) ||
      port::udp_port_of_qpn(message.wire_qpn) != message.location.udp_port ||
      message.location.address.is_ipv4() != qp_.path.peer.address.is_ipv4()) {
    return false;
  }
  epochs_.place = message.epoch;
  relocate(message.location, message.wire_qpn, now);
  return true;
}

// Goes back to the first PSN that is not acknowledged: what was sent to the old place was lost
// there.
void Migration::relocate(const port::Endpoint& location, std::uint32_t qpn, Time now) {
  streams_.cancel_requests();
  qp_.path.peer = location;
  qp_.path.peer_wire_qpn = qpn;
  qp_.path.unanswered = 0;
  if (qp_.migration.paused) timers_.probe.start(now, qp_.settings.probe_first);
  if (qp_.migration.resume_pending) qp_.migration.due |= kDueResume;
  if (!qp_.path.ferry()) {
    qp_.path.peer_class = PeerClass::kUnknown;
    qp_.path.presumed_standard = false;
    handshake_.start(now);
  }
}

void Migration::timeout(Time now) {
  handshake_.timeout(now);
  if (timers_.probe.at <= now) {
    qp_.migration.due |= kDueHello;
    qp_.count_unanswered();
    timers_.probe.again(now, qp_.settings.probe_last);
  }
  resumption_.timeout(now);
  if ((qp_.migration.paused || qp_.migration.resume_pending) && timers_.limit_at == kNever) {
    // The state comes from a record, which has no time.
    timers_.limit_at = now + qp_.settings.paused_limit;
  }
  if (timers_.limit_at <= now) limit_reached();
}

// A reliable QP with nothing to send only falls silent: a request posted later fails at once, and a
// late RESUME is still heard.
void Migration::limit_reached() {
  timers_.probe.stop();
  timers_.resume.stop();
  if (qp_.is_uc()) {
    // The QP goes on sending, though nobody is there to receive, as UC does in any case.
    qp_.migration.paused = qp_.migration.resume_pending = false;
    timers_.limit_at = kNever;
  } else if (streams_.sends().is_waited_for()) {
    errors_.fail(streams_.sends().queue.head(), Status::kRetryExceeded);
  }
}

// --- What the RNIC asks for ---------------------------------------------------------------------

bool Migration::enter_stopped() {
  if (qp_.migration.stopped) return false;
  qp_.migration.stopped = true;
  qp_.migration.due = 0;
  if (!qp_.receiving()) return false;
  ++epochs_.own;
  streams_.cancel_requests();
  qp_.migration.resume_pending = false;
  return qp_.settings.enabled && qp_.path.ferry();
}

void Migration::go_on(bool counts, Time now) {
  qp_.migration.due = 0;
  timers_.stop();
  if (counts) ++epochs_.own;
  if (!qp_.receiving()) return;
  streams_.forget_responses();
  if (qp_.settings.enabled && qp_.path.ferry()) {
    resumption_.announce(now);
    return;
  }
  if (qp_.path.peer_class == PeerClass::kUnknown) handshake_.start(now);
  streams_.acknowledge_again();
}

// A QP that is Stopped tells its peer of the new path when it resumes.
void Migration::set_path(const port::Endpoint& peer, std::uint32_t wire_qpn, Time now) {
  streams_.cancel_requests();
  qp_.path.peer = qp_.rtr.peer = peer;
  qp_.path.peer_wire_qpn = qp_.rtr.peer_qpn;
  qp_.wire_qpn = wire_qpn;
  if (!qp_.migration.stopped) go_on(true, now);
}

void Migration::located(const port::Endpoint& name, const port::Endpoint& location,
                        std::uint32_t epoch, Time now) {
  if (name != qp_.rtr.peer || qp_.migration.stopped || !qp_.speaks()) return;
  if (location == qp_.path.peer || epoch < epochs_.place + epochs_.peer) return;
  epochs_.place = epoch - epochs_.peer;
  relocate(location,
           port::make_qpn(port::slot_of_udp_port(location.udp_port),
                          port::index_of(qp_.path.peer_wire_qpn)),
           now);
}

// --- The record ---------------------------------------------------------------------------------

void Migration::save(Saver& out) const {
  visit_flags(out, qp_);
  handshake_.save(out);
  visit_epochs(out, epochs_);
}

void Migration::load(Loader& in) {
  visit_flags(in, qp_);
  handshake_.load(in);
  visit_epochs(in, epochs_);
}

void Migration::start_at_once() {
  qp_.path.presumed_standard =
      qp_.settings.enabled && qp_.path.peer_class == PeerClass::kUnmodified;
  if (!qp_.receiving() || !qp_.settings.enabled || qp_.migration.stopped) return;
  constexpr Time kAtOnce = Time::min();
  if (qp_.migration.paused) timers_.probe = {kAtOnce, qp_.settings.probe_first};
  if (qp_.migration.resume_pending) timers_.resume = {kAtOnce, qp_.settings.resume_first};
  if (qp_.path.peer_class == PeerClass::kUnknown) handshake_.start_at_once();
}

}  // namespace ferry::transport
