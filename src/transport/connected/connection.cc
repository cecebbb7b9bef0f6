#include "transport/connected/connection.h"

#include <algorithm>
#include <cerrno>

#include "transport/connected/connection_parts.h"
#include "transport/partition.h"

namespace ferry::transport {

using Sendable = Requester::Sendable;

Connection::Connection(Host& host, const QueueLimits& limits, const MigrationSettings& settings,
                       std::uint32_t virtual_qpn, std::uint32_t wire_qpn)
    : parts_(std::make_unique<Parts>(host, limits, settings, virtual_qpn, wire_qpn)) {}

Connection::~Connection() = default;

// --- State transitions --------------------------------------------------------------------------

void Connection::reset() {
  parts_->forget();
  parts_->qp.agreed = {};
  parts_->qp.qp_state = QpState::kReset;
}

void Connection::init() {
  parts_->qp.qp_state = QpState::kInit;
}

void Connection::to_rtr(const RtrAttributes& attributes, Time now) {
  QpAttributes& qp = parts_->qp;
  qp.rtr = attributes;
  qp.rtr.peer_qpn &= wire::kPsnMask;
  qp.path.peer = attributes.peer;
  qp.path.peer_wire_qpn = attributes.peer_wire_qpn ? attributes.peer_wire_qpn : attributes.peer_qpn;
  parts_->receives().expected_psn = attributes.expected_psn & wire::kPsnMask;
  if (ReliableParts* rc = parts_->reliable()) rc->responses.reserve(attributes.max_dest_rd_atomic);
  qp.qp_state = QpState::kRtr;
  parts_->memory.handshake.draw_cookie();
  if (!qp.settings.enabled) qp.path.peer_class = PeerClass::kUnmodified;  // nobody asks the peer
  parts_->memory.handshake.start(now);
}

void Connection::to_rts(const RtsAttributes& attributes, Time now) {
  parts_->qp.rts = attributes;
  parts_->qp.qp_state = QpState::kRts;
  if (ReliableParts* rc = parts_->reliable()) {
    rc->flight.start(now);
  } else {
    parts_->sends().start(attributes.next_psn);
  }
}

void Connection::set_min_rnr_timer(std::uint8_t code) {
  parts_->qp.rtr.min_rnr_timer = code & 31;
}

void Connection::set_peer_retries(const PeerRetries& peer) {
  parts_->qp.agreed = peer;
}

void Connection::set_limits(const RtsAttributes& attributes, std::uint8_t max_dest_rd_atomic) {
  QpAttributes& qp = parts_->qp;
  const std::uint32_t next_psn = qp.rts.next_psn;
  qp.rts = attributes;
  qp.rts.next_psn = next_psn;
  qp.rtr.max_dest_rd_atomic = max_dest_rd_atomic;
  if (ReliableParts* rc = parts_->reliable()) {
    rc->flight.set_limits();
    // Requests that were accepted keep their responder resources: they are answered, also again.
    const std::size_t accepted =
        std::max(rc->responses.responses.size(), rc->responses.saved.all().size());
    qp.rtr.max_dest_rd_atomic = std::max(max_dest_rd_atomic, static_cast<std::uint8_t>(accepted));
    rc->responses.reserve(qp.rtr.max_dest_rd_atomic);
  }
}

void Connection::set_sqd(bool draining) {
  parts_->qp.qp_state = draining ? QpState::kSqd : QpState::kRts;
  SendStream& sends = parts_->sends();
  sends.drained_raised = false;
  if (ReliableParts* rc = parts_->reliable(); rc && draining) rc->flight.ask_now();
  sends.check_drained();
}

void Connection::to_error(Time) {
  parts_->errors().flush_all();
}

QpState Connection::state() const {
  return parts_->qp.qp_state;
}

// --- Work requests ------------------------------------------------------------------------------

int Connection::post_send(const SendRequest& request) {
  const QpAttributes& qp = parts_->qp;
  switch (qp.qp_state) {
    case QpState::kReset:
    case QpState::kInit:
    case QpState::kRtr: return EINVAL;
    case QpState::kError:
    case QpState::kSqe:
      qp.path.host.complete_send(
          {.wr_id = request.wr_id, .status = Status::kFlush, .operation = request.operation});
      return 0;
    default: break;
  }
  if (!qp.acceptable(request)) return EINVAL;
  SendQueue& queue = parts_->sends().queue;
  if (!queue.push(request)) return ENOMEM;
  if (queue.at(queue.tail() - 1).is_local()) {
    if (ReliableParts* rc = parts_->reliable()) rc->flight.ask_now();
  }
  return 0;
}

std::uint64_t Connection::posted() const {
  return parts_->sends().queue.tail();
}

void Connection::take_back(std::uint64_t posted) {
  parts_->sends().queue.truncate(posted);
}

void Connection::receive_posted(Time) {
  ReliableParts* rc = parts_->reliable();
  if (!rc || !rc->responses.advertised_zero || !parts_->qp.receiving()) return;
  rc->responses.advertised_zero = false;
  rc->responses.ack_due = true;
}

// --- Events in ----------------------------------------------------------------------------------

// Handles a packet of the transport (not of the migration protocol) whose opcode is given as RC's.
void Connection::handle_transport(const wire::Packet& packet, Time now) {
  QpAttributes& qp = parts_->qp;
  ReliableParts* rc = parts_->reliable();
  if (wire::is_request(packet.header.opcode)) {
    if (qp.limits.type == ConnectionType::kXrcInitiator) return;
    // A peer that sends requests has heard our RESUME. We have not heard its RESUME_ACK, and answer
    // nothing until we do.
    if (kMovable && qp.migration.resume_pending) qp.migration.due |= kDueResume;
    rc ? rc->responder().handle(packet) : parts_->uc()->responder().handle(packet);
  } else if (!rc || !qp.requesting()) {
    return;
  } else if (packet.header.opcode == wire::Opcode::kRcAck) {
    rc->completer().handle_ack(packet, now);
  } else {
    rc->completer().handle_response(packet, now);
  }
}

void Connection::handle_packet(const wire::Packet& packet, const port::Endpoint& from, Time now) {
  QpAttributes& qp = parts_->qp;
  if (!qp.receiving()) return;
  if (!in_our_partition(packet.header)) {
    ++qp.path.counters.dropped_forged;
    return;
  }
  if (qp.stopped()) {
    parts_->answer_while_we_are_stopped(packet, from);
    return;
  }
  if (is_migration(packet.header)) {
    parts_->handle_migration(packet, from, now);
    return;
  }
  // Packets of another service are not for this QP (clause 9.6.1.1); CNPs are dropped here, too.
  if (wire::service_of(packet.header.opcode) != qp.path.service) return;
  if (!qp.path.comes_from_peer(from)) {
    ++qp.path.counters.dropped_forged;
    return;
  }
  ++qp.path.counters.received_packets;
  if (kMovable) qp.path.unanswered = 0;
  if (qp.qp_state == QpState::kRtr) parts_->receives().raise_established();
  if (qp.path.service == wire::Service::kRc) {
    handle_transport(packet, now);
  } else {
    wire::Packet as_rc = packet;
    as_rc.header.opcode = wire::as_rc(packet.header.opcode);
    handle_transport(as_rc, now);
  }
}

void Connection::handle_timeout(Time now) {
  if (parts_->qp.migration.stopped) return;
  parts_->migration().timeout(now);
  ReliableParts* rc = parts_->reliable();
  if (rc && parts_->qp.requesting()) rc->requester().timeout(now);
}

// --- What to do next ----------------------------------------------------------------------------

unsigned Connection::transmit(Time now, unsigned budget) {
  unsigned sent = 0;
  if (parts_->qp.migrating()) {
    sent = parts_->transmit_migration();
    if (parts_->qp.silent()) return sent;
  }
  ReliableParts* rc = parts_->reliable();
  if (!rc) return sent < budget ? sent + parts_->uc()->requester().transmit(budget - sent) : sent;
  if (sent < budget && !rc->responses.responses.empty()) {
    sent += rc->responder().transmit(budget - sent);
  }
  Requester requester = rc->requester();
  if (requester.is_starved()) rc->flight.ask_now();
  if (rc->flight.probe.due && sent < budget && requester.transmit_probe(now)) ++sent;
  // A small request and the acknowledgement behind it leave as one super-packet.
  const unsigned first = sent < budget && rc->responses.acknowledgement_due() ? 1 : 0;
  if (first > 0) sent += requester.transmit(now, first);
  if (sent < budget) sent += rc->responses.transmit_acknowledgement();
  if (sent < budget) sent += requester.transmit(now, budget - sent);
  return sent;
}

bool Connection::has_work() const {
  if (parts_->qp.migrating()) {
    if (parts_->qp.migration.due != 0) return true;
    if (parts_->qp.silent()) return false;
  }
  ReliableParts* rc = parts_->reliable();
  if (!rc) return parts_->uc()->requester().sendable();
  return rc->responses.due() || rc->flight.probe.due ||
         rc->requester().sendable() == Sendable::kYes || rc->requester().is_starved();
}

bool Connection::only_acknowledges() const {
  ReliableParts* rc = parts_->reliable();
  return rc && rc->responses.ack_due && !rc->responses.nak_due && rc->responses.responses.empty() &&
         !parts_->qp.migrating() && !rc->flight.probe.due &&
         rc->requester().sendable() == Sendable::kNo && !rc->requester().is_starved();
}

bool Connection::awaits_answer() const {
  ReliableParts* rc = parts_->reliable();
  return rc && rc->flight.una < rc->flight.probe.asked_end;
}

bool Connection::acknowledge_rest() {
  ReliableParts* rc = parts_->reliable();
  if (!rc || !rc->responses.unanswered || !parts_->qp.receiving()) return false;
  rc->responses.ack_due = true;
  return true;
}

bool Connection::waits_for_window() const {
  ReliableParts* rc = parts_->reliable();
  return rc && rc->requester().sendable() == Sendable::kWindow;
}

Deadlines Connection::deadlines() const {
  return parts_->qp.migrating() ? parts_->migration_deadlines() : parts_->transport_deadlines();
}

// --- Migration ----------------------------------------------------------------------------------

void Connection::prepare(Time now) {
  parts_->memory.handshake.ask_again(now);
}

bool Connection::finishing() const {
  ReliableParts* rc = parts_->reliable();
  return rc && parts_->qp.receiving() && !parts_->qp.path.ferry() &&
         !rc->responses.responses.empty();
}

void Connection::stop(Time) {
  Migration migration = parts_->migration();
  // A lost PAUSE does no harm: the stand-in answers what the peer sends.
  if (migration.enter_stopped()) migration.sender().send(wire::MigrationType::kPause);
}

// False for UC, since a peer that is not told loses what it sends meanwhile, and towards a peer of
// unknown kind, which may not ask.
bool Connection::idle() const {
  const QpAttributes& qp = parts_->qp;
  ReliableParts* rc = parts_->reliable();
  return rc && qp.speaks() && qp.path.ferry() && !qp.silent() && qp.migration.due == 0 &&
         rc->flight.queue.empty() && !rc->responses.due() &&
         rc->receives.message == RequestKind::kNone && !rc->receives.has_receive;
}

void Connection::stop_untold() {
  parts_->migration().enter_stopped();
}

std::vector<std::byte> Connection::stand_in_entry(const port::Address&) const {
  std::vector<std::byte> entry;
  if (!parts_->qp.receiving()) return entry;
  StoppedEnd end = parts_->migration().own_end().description();
  if (!parts_->qp.migration.stopped) ++end.epoch;
  wire::ByteWriter out(&entry);
  end.save(out);
  return entry;
}

void Connection::resume(std::uint32_t wire_qpn, bool rollback, Time now) {
  QpAttributes& qp = parts_->qp;
  qp.wire_qpn = wire_qpn;
  if (!qp.migration.stopped) return;
  qp.migration.stopped = false;
  parts_->migration().go_on(rollback && qp.receiving(), now);
}

void Connection::set_path(const port::Endpoint& peer, std::uint32_t wire_qpn, Time now) {
  parts_->migration().set_path(peer, wire_qpn, now);
}

void Connection::located(const port::Endpoint& name, const port::Endpoint& location,
                         std::uint32_t epoch, Time now) {
  parts_->migration().located(name, location, epoch, now);
}

void Connection::save(wire::ByteWriter& out) const {
  parts_->save(out);
}

bool Connection::load(wire::ByteReader& in) {
  return parts_->load(in);
}

// --- Status -------------------------------------------------------------------------------------

TransportStatus Connection::status() const {
  const QpAttributes& qp = parts_->qp;
  const SendStream& sends = parts_->sends();
  const auto psn = [](std::uint64_t extended) {
    return static_cast<std::uint32_t>(extended & wire::kPsnMask);
  };
  return {.state = qp.qp_state,
          .migration = qp.migration.stopped  ? MigrationState::kStopped
                       : qp.migration.paused ? MigrationState::kPaused
                                             : MigrationState::kNone,
          .peer_class = qp.path.peer_class,
          .virtual_qpn = qp.virtual_qpn,
          .wire_qpn = qp.wire_qpn,
          .peer_qpn = qp.rtr.peer_qpn,
          .peer_wire_qpn = qp.path.peer_wire_qpn,
          .peer = qp.path.peer,
          .epoch = parts_->memory.epochs.own,
          .next_psn = psn(sends.max_sent),
          .first_unacked_psn = psn(sends.una),
          .expected_psn = parts_->receives().expected_psn,
          .unacked_psns = static_cast<std::uint32_t>(sends.max_sent - sends.una),
          .resume_pending = qp.migration.resume_pending,
          .peer_retries = qp.peer_retries(),
          .counters = qp.path.counters};
}

}  // namespace ferry::transport
