#include "transport/connection.h"

#include <cerrno>
#include <limits>

#include "port/slot.h"
#include "transport/connection_state.h"
#include "transport/partition.h"
#include "transport/timers.h"

namespace ferry::transport {

using wire::Opcode;
using S = Connection::State;

S::State(Host& host_, const QueueLimits& limits_, const MigrationSettings& settings_,
         std::uint32_t virtual_qpn_, std::uint32_t wire_qpn_)
    : host(host_),
      limits(limits_),
      settings(settings_),
      virtual_qpn(virtual_qpn_),
      wire_qpn(wire_qpn_),
      req(limits_),
      rsp(limits_) {}

void S::address(wire::Header& header, Opcode opcode, std::uint32_t psn) const {
  header.opcode = wire::in_service(service(), opcode);
  header.dest_qpn = peer_wire_qpn;
  header.psn = psn;
}

EmitResult S::emit(OutPacket& packet) {
  packet.to = is_migration(packet.header) ? peer : peer_port();
  const EmitResult result = host.emit(packet);
  if (result == EmitResult::kOk) {
    ++counters.sent_packets;
    counters.sent_bytes += packet.length;
  }
  return result;
}

// A standard NIC's QPN says nothing of a slot.
port::Endpoint S::peer_port() const {
  return ferry() || !mig.presumed_standard ? peer
                                           : port::Endpoint{peer.address, port::kRoceUdpPort};
}

// Everything of this incarnation but the queue's storage, the Stopped flag and the counters.
void S::forget() {
  if (req.in_flight != 0) host.account(peer, -req.in_flight);
  SendQueue queue = std::move(req.queue);
  queue.clear();
  req = RequesterState(std::move(queue));
  rsp = ResponderState(std::move(rsp.receive));
  const bool stopped = mig.stopped;
  mig = MigrationData();
  mig.stopped = stopped;
  peer = {};
  peer_wire_qpn = 0;
}

void S::fail(std::uint64_t failed, Status status) {
  qp_state = QpState::kError;
  if (req.in_flight != 0) host.account(peer, -req.in_flight);
  req.in_flight = 0;
  req.ack_at = req.rnr_until = kNever;
  req.probe.cancel();
  SendQueue& queue = req.queue;
  while (!queue.empty()) {
    const Wqe& wqe = queue.at(queue.head());
    const SendCompletion completion{.wr_id = wqe.wr_id,
                                    .status = queue.head() == failed ? status : Status::kFlush,
                                    .operation = wqe.operation};
    queue.pop();
    host.complete_send(completion);
  }
  req.una = req.next = req.max_sent;
  req.cursor = queue.head();
  req.pending_rd_atomics = 0;
  req.rd_atomics_in_flight.clear();

  rsp.message = RequestKind::kNone;
  rsp.ack_due = false;
  if (!rsp.nak_fatal) {
    rsp.nak_due = false;
    rsp.responses.clear();
  }
  if (rsp.has_receive) {
    rsp.has_receive = false;
    host.complete_receive(
        {.wr_id = rsp.receive.wr_id, .status = Status::kFlush, .srqn = rsp.receive_srqn});
  }
  host.flush_receives();

  mig.paused = mig.resume_pending = false;
  mig.due = 0;
  mig.hello.stop();
  mig.probe.stop();
  mig.resume.stop();
  mig.limit_at = kNever;
}

void S::flush_all() {
  fail(std::numeric_limits<std::uint64_t>::max(), Status::kFlush);
}

void S::handle_packet(const wire::Packet& packet, const port::Endpoint& from, Time now) {
  if (!receiving()) return;
  const Opcode opcode = packet.header.opcode;
  if (!in_our_partition(packet.header)) {
    ++counters.dropped_forged;
    return;
  }
  if (stopped()) {
    answer_while_we_are_stopped(packet, from);
    return;
  }
  if (is_migration(packet.header)) {
    if (settings.enabled && !handle_migration(packet, from, now)) ++counters.dropped_forged;
    return;
  }
  // Another service's is not ours (clause 9.6.1.1), nor is a congestion notification a request.
  if (wire::service_of(opcode) != service()) return;
  if (!comes_from(from, peer, mig.peer_class)) {
    ++counters.dropped_forged;
    return;
  }
  ++counters.received_packets;
  if (kMovable) mig.unanswered = 0;
  if (qp_state == QpState::kRtr && !rsp.established_raised) {
    rsp.established_raised = true;
    host.raise(Host::Event::kCommunicationEstablished);
  }
  if (service() == wire::Service::kRc) {
    handle_transport(packet, now);
  } else {
    wire::Packet as_rc = packet;
    as_rc.header.opcode = wire::as_rc(opcode);
    handle_transport(as_rc, now);
  }
}

void S::handle_transport(const wire::Packet& packet, Time now) {
  const Opcode opcode = packet.header.opcode;
  if (wire::is_request(opcode)) {
    if (limits.type == ConnectionType::kXrcInitiator) return;
    // The peer goes on, so it has heard our RESUME; we have not heard its RESUME_ACK, and answer
    // nothing until then.
    if (kMovable && mig.resume_pending) mig.due |= kDueResume;
    is_uc() ? handle_uc(packet) : handle_request(packet);
  } else if (!requesting()) {
    return;
  } else if (opcode == Opcode::kRcAck) {
    handle_ack(packet, now);
  } else {
    handle_response(packet, now);
  }
}

Deadlines S::deadlines() const {
  Deadlines at;
  if (kMovable) at.strict = std::min(mig.hello.at, mig.probe.at);
  if (migrating()) {
    if (mig.stopped) return {};
    at.strict = std::min(at.strict, mig.resume.at);
    if (requesting() && is_waited_for()) at.strict = std::min(at.strict, mig.limit_at);
  }
  if (!requesting()) return at;
  // Not the minimum of a list, which is a loop: this is asked after each packet.
  at.strict = std::min(at.strict, std::min(req.ack_at, req.rnr_until));
  at.lenient = req.probe.at;
  return at;
}

Connection::Connection(Host& host, const QueueLimits& limits, const MigrationSettings& settings,
                       std::uint32_t virtual_qpn, std::uint32_t wire_qpn)
    : state_(std::make_unique<State>(host, limits, settings, virtual_qpn, wire_qpn)) {}

Connection::~Connection() {
  if (state_->req.in_flight != 0) state_->host.account(state_->peer, -state_->req.in_flight);
}

void Connection::reset() {
  state_->forget();
  state_->agreed = {};
  state_->qp_state = QpState::kReset;
}

void Connection::init() {
  state_->qp_state = QpState::kInit;
}

void Connection::to_rtr(const RtrAttributes& attributes, Time now) {
  State& s = *state_;
  s.rtr = attributes;
  s.rtr.peer_qpn &= wire::kPsnMask;
  s.peer = attributes.peer;
  s.peer_wire_qpn = attributes.peer_wire_qpn ? attributes.peer_wire_qpn : attributes.peer_qpn;
  s.rsp.expected_psn = attributes.expected_psn & wire::kPsnMask;
  s.rsp.responses.reserve(attributes.max_dest_rd_atomic);
  s.rsp.saved.reserve(attributes.max_dest_rd_atomic);
  s.qp_state = QpState::kRtr;
  do {
    s.mig.cookie = s.host.random();
  } while (s.mig.cookie == 0);
  if (!s.settings.enabled) s.mig.peer_class = PeerClass::kUnmodified;  // it is never asked
  s.start_hello(now);
}

void Connection::to_rts(const RtsAttributes& attributes, Time now) {
  State& s = *state_;
  s.rts = attributes;
  s.req.una = s.req.next = s.req.max_sent = kPsnRound + (attributes.next_psn & wire::kPsnMask);
  s.req.window = kMaxWindow;
  s.req.rd_atomics_in_flight.reserve(attributes.max_rd_atomic);
  s.qp_state = QpState::kRts;
  s.progress(now);
}

void Connection::set_min_rnr_timer(std::uint8_t code) {
  state_->rtr.min_rnr_timer = code & 31;
}

void Connection::set_peer_retries(const PeerRetries& peer) {
  state_->agreed = peer;
}

void Connection::set_limits(const RtsAttributes& attributes, std::uint8_t max_dest_rd_atomic) {
  State& s = *state_;
  const std::uint32_t next_psn = s.rts.next_psn;
  s.rts = attributes;
  s.rts.next_psn = next_psn;
  s.req.rd_atomics_in_flight.reserve(attributes.max_rd_atomic);
  s.req.retries_left = attributes.retry_count;
  s.req.rnr_retries_left = attributes.rnr_retry;
  // What was accepted is answered, also a second time.
  s.rtr.max_dest_rd_atomic = std::max(
      max_dest_rd_atomic,
      static_cast<std::uint8_t>(std::max(s.rsp.responses.size(), s.rsp.saved.all().size())));
  s.rsp.responses.reserve(s.rtr.max_dest_rd_atomic);
  s.rsp.saved.reserve(s.rtr.max_dest_rd_atomic);
}

void Connection::set_sqd(bool draining) {
  state_->qp_state = draining ? QpState::kSqd : QpState::kRts;
  state_->req.drained_raised = false;
  if (draining) state_->ask_now();
  state_->check_drained();
}

void Connection::to_error(Time) {
  state_->flush_all();
}

QpState Connection::state() const {
  return state_->qp_state;
}

bool S::acceptable(const SendRequest& request) const {
  if (limits.type == ConnectionType::kXrcTarget || request.length > kMaxMessage) return false;
  if (is_uc()) {
    constexpr Operation kOperations[] = {Operation::kSend,       Operation::kSendImm,
                                         Operation::kWrite,      Operation::kWriteImm,
                                         Operation::kBindWindow, Operation::kLocalInvalidate};
    if (std::count(std::begin(kOperations), std::end(kOperations), request.operation) == 0) {
      return false;
    }
  }
  switch (request.operation) {
    case Operation::kLocalInvalidate: return true;
    case Operation::kBindWindow: return request.binding != nullptr;
    case Operation::kFlush: return rts.max_rd_atomic > 0;
    case Operation::kRead:
      if (request.inline_data || rts.max_rd_atomic == 0) return false;
      break;
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      if (request.inline_data || rts.max_rd_atomic == 0 || request.length < kAtomicBytes) {
        return false;
      }
      break;
    case Operation::kAtomicWrite:
      if (rts.max_rd_atomic == 0 || request.length != kAtomicBytes) return false;
      break;
    default: break;
  }
  return request.inline_data ? request.length <= limits.max_inline
                             : request.sge_count <= limits.max_send_sge;
}

int Connection::post_send(const SendRequest& request) {
  State& s = *state_;
  switch (s.qp_state) {
    case QpState::kReset:
    case QpState::kInit:
    case QpState::kRtr: return EINVAL;
    case QpState::kError:
    case QpState::kSqe:
      s.host.complete_send(
          {.wr_id = request.wr_id, .status = Status::kFlush, .operation = request.operation});
      return 0;
    default: break;
  }
  if (!s.acceptable(request)) return EINVAL;
  if (!s.req.queue.push(request)) return ENOMEM;
  if (s.req.queue.at(s.req.queue.tail() - 1).is_local()) s.ask_now();
  return 0;
}

std::uint64_t Connection::posted() const {
  return state_->req.queue.tail();
}

void Connection::take_back(std::uint64_t posted) {
  state_->req.queue.truncate(posted);
}

void Connection::receive_posted(Time) {
  State& s = *state_;
  if (!s.rsp.advertised_zero || !s.receiving()) return;
  s.rsp.advertised_zero = false;
  s.rsp.ack_due = true;
}

void Connection::handle_packet(const wire::Packet& packet, const port::Endpoint& from, Time now) {
  state_->handle_packet(packet, from, now);
}

void Connection::handle_timeout(Time now) {
  State& s = *state_;
  if (s.mig.stopped) return;
  s.migration_timeout(now);
  if (s.requesting()) s.requester_timeout(now);
}

unsigned Connection::transmit(Time now, unsigned budget) {
  State& s = *state_;
  unsigned sent = 0;
  if (s.migrating()) {
    sent = s.transmit_migration();
    if (s.silent()) return sent;
  }
  if (s.is_uc()) return sent < budget ? sent + s.transmit_uc(budget - sent) : sent;
  if (sent < budget) sent += s.transmit_responses(budget - sent);
  if (s.is_starved()) s.ask_now();
  if (s.req.probe.due && sent < budget && s.transmit_probe(now)) ++sent;
  // A small request and the acknowledgement behind it leave as one super-packet.
  const unsigned first = sent < budget && s.acknowledgement_due() ? 1 : 0;
  if (first > 0) sent += s.transmit_requests(now, first);
  if (sent < budget) sent += s.transmit_acknowledgement();
  if (sent < budget) sent += s.transmit_requests(now, budget - sent);
  return sent;
}

bool Connection::has_work() const {
  const State& s = *state_;
  if (s.migrating()) {
    if (s.mig.due != 0) return true;
    if (s.silent()) return false;
  }
  if (!s.is_uc() && (s.responses_due() || s.req.probe.due)) return true;
  return s.sendable() == State::Sendable::kYes || s.is_starved();
}

bool Connection::only_acknowledges() const {
  const State& s = *state_;
  return s.rsp.ack_due && !s.rsp.nak_due && s.rsp.responses.empty() && !s.migrating() &&
         !s.req.probe.due && s.sendable() == State::Sendable::kNo && !s.is_starved();
}

bool Connection::awaits_answer() const {
  return state_->req.una < state_->req.probe.asked_end;
}

bool Connection::acknowledge_rest() {
  State& s = *state_;
  if (!s.rsp.unanswered || !s.receiving() || s.is_uc()) return false;
  s.rsp.ack_due = true;
  return true;
}

bool Connection::waits_for_window() const {
  const State& s = *state_;
  return s.sendable() == State::Sendable::kWindow;
}

Deadlines Connection::deadlines() const {
  return state_->deadlines();
}

TransportStatus Connection::status() const {
  const State& s = *state_;
  const auto psn = [](std::uint64_t extended) {
    return static_cast<std::uint32_t>(extended & wire::kPsnMask);
  };
  return {.state = s.qp_state,
          .migration = s.mig.stopped  ? MigrationState::kStopped
                       : s.mig.paused ? MigrationState::kPaused
                                      : MigrationState::kNone,
          .peer_class = s.mig.peer_class,
          .virtual_qpn = s.virtual_qpn,
          .wire_qpn = s.wire_qpn,
          .peer_qpn = s.rtr.peer_qpn,
          .peer_wire_qpn = s.peer_wire_qpn,
          .peer = s.peer,
          .epoch = s.mig.epoch,
          .next_psn = psn(s.req.max_sent),
          .first_unacked_psn = psn(s.req.una),
          .expected_psn = s.rsp.expected_psn,
          .unacked_psns = static_cast<std::uint32_t>(s.req.max_sent - s.req.una),
          .resume_pending = s.mig.resume_pending,
          .peer_retries = s.peer_retries(),
          .counters = s.counters};
}

}  // namespace ferry::transport
