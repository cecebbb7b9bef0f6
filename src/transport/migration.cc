#include <new>

#include "port/slot.h"
#include "transport/connection_state.h"

// The migration protocol (docs/wire.md, "Migration"; TardiS section 3.4): HELLO, PAUSE,
// NAK_STOPPED, RESUME, MOVED; the states Stopped and Paused.
//
// Silence: a QP that is Stopped, Paused or waits for its RESUME_ACK sends no requests,
// acknowledgements or READ responses. A peer would drop them (the address is not yet known) or
// cannot hear them. It still receives: what comes from the peer's current address was sent before
// the stop and is true.
namespace ferry::transport {

using wire::MigrationMessage;
using wire::MigrationType;

namespace {

// HELLOs without an answer, 15 ms, after which a peer is treated as a standard NIC. One of our kind
// that is only late is reached at UDP port 4791 too.
constexpr unsigned kHellosToStandardNic = 4;

}  // namespace

void Connection::State::start_hello(Time now) {
  if (!speaks() || mig.stopped || settings.hello_repeats == 0) return;
  mig.due |= kDueHello;
  mig.hellos_left = settings.hello_repeats - 1;
  mig.hello.start(now, settings.hello_first);
  mig.hello.again(now, settings.hello_last);
}

PeerRetries Connection::State::peer_retries() const {
  if (agreed.known) return agreed;
  const bool requester = requesting() && limits.type != ConnectionType::kXrcTarget;
  if (!requester) return {};  // we have none ourselves: what programs mostly use
  return {rts.timeout, rts.retry_count, rts.rnr_retry, false};
}

StoppedEnd Connection::State::stopped_end() const {
  const StoppedTreatment treatment = treatment_of(peer_retries());
  return {.virtual_qpn = virtual_qpn,
          .wire_qpn = wire_qpn,
          .peer = peer_port(),
          .peer_qpn = rtr.peer_qpn,
          .peer_wire_qpn = peer_wire_qpn,
          .peer_class = mig.peer_class,
          .cookie = mig.cookie,
          .peer_cookie = mig.peer_cookie,
          .epoch = mig.epoch,
          .peer_epoch = mig.peer_epoch,
          .peer_resumed = mig.peer_resumed,
          .expected_psn = rsp.expected_psn,
          .next_psn = static_cast<std::uint32_t>(req.max_sent & wire::kPsnMask),
          .msn = rsp.msn,
          .paused_limit = settings.paused_limit,
          .gets_rnr_naks = treatment.answers,
          .rnr_timer = treatment.rnr_timer};
}

// --- Sending ------------------------------------------------------------------------------------

MigrationMessage Connection::State::message(MigrationType type) const {
  MigrationMessage result;
  result.type = type;
  switch (type) {
    case MigrationType::kHello:
      result.cookie = mig.cookie;
      result.echo = mig.peer_cookie;
      break;
    case MigrationType::kHelloAck:
      result.cookie = mig.cookie;
      result.echo = mig.hello_echo;
      break;
    case MigrationType::kHelloDone:
      result.cookie = mig.cookie;
      result.echo = mig.peer_cookie;
      break;
    case MigrationType::kResume:
    case MigrationType::kResumeAck:
      // RESUME_ACK names the epoch that it acknowledges.
      result.epoch = type == MigrationType::kResume ? mig.epoch : mig.peer_epoch;
      result.wire_qpn = wire_qpn;
      result.first_unacked_psn = static_cast<std::uint32_t>(req.una & wire::kPsnMask);
      result.expected_psn = rsp.expected_psn;
      if (DatagramSource us; host.place_towards(peer.address, &us)) {
        result.location = us.place.endpoint;
      }
      break;
    default: result.epoch = mig.epoch;
  }
  return result;
}

bool Connection::State::send_message(const MigrationMessage& message) {
  const ControlPacket answer = packet_with(stopped_end(), message, peer);
  OutPacket out;
  out.header = answer.header;
  out.source = OutPacket::Source::kBytes;
  out.bytes = answer.payload.data();
  out.length = static_cast<std::uint32_t>(answer.payload_size);
  return emit(out) != EmitResult::kNoRoom;
}

unsigned Connection::State::transmit_migration() {
  static constexpr struct {
    Due due;
    MigrationType type;
  } kOrder[] = {{kDueResumeAck, MigrationType::kResumeAck},
                {kDueResume, MigrationType::kResume},
                {kDueHelloAck, MigrationType::kHelloAck},
                {kDueHelloDone, MigrationType::kHelloDone},
                {kDueHello, MigrationType::kHello}};
  unsigned sent = 0;
  for (const auto& [due, type] : kOrder) {
    if (!(mig.due & due)) continue;
    if (!send_message(message(type))) return sent;
    mig.due &= ~due;
    ++sent;
  }
  if (mig.due & kDueStoppedAnswer) {
    OutPacket out;
    out.header = mig.stopped_answer->header;
    out.length = static_cast<std::uint32_t>(mig.stopped_answer->payload_size);
    if (out.length > 0) {
      out.source = OutPacket::Source::kBytes;
      out.bytes = mig.stopped_answer->payload.data();
    }
    if (emit(out) == EmitResult::kNoRoom) return sent;
    mig.due &= ~kDueStoppedAnswer;
    ++sent;
  }
  return sent;
}

// --- Stopping and pausing -----------------------------------------------------------------------

void Connection::State::cancel_requester() {
  if (!requesting()) return;
  go_back();
  req.rnr_until = kNever;
  req.retries_left = rts.retry_count;
  req.rnr_retries_left = rts.rnr_retry;
}

// The limit is absolute, from the moment at which this stop of the peer became known.
void Connection::State::pause(Time now) {
  cancel_requester();
  mig.paused = true;
  mig.probe.start(now + settings.probe_first, settings.probe_first);
  mig.limit_at = now + settings.paused_limit;
}

// Only the latest answer is kept: a burst of requests needs one.
void Connection::State::answer_while_we_are_stopped(const wire::Packet& packet,
                                                    const port::Endpoint& from) {
  if (const auto answer = answer_of(stopped_end(), packet, from)) {
    if (!mig.stopped_answer) mig.stopped_answer.reset(new (std::nothrow) ControlPacket);
    if (!mig.stopped_answer) return;  // who asked asks again
    *mig.stopped_answer = *answer;
    mig.due |= kDueStoppedAnswer;
  }
}

// --- Receiving ----------------------------------------------------------------------------------

bool Connection::State::authentic(const MigrationMessage& message) const {
  return is_authentic(message, stopped_end());
}

bool Connection::State::handle_migration(const wire::Packet& packet, const port::Endpoint& from,
                                         Time now) {
  const auto message = wire::parse_migration(packet.payload);
  if (!message) return false;
  // NAK_STOPPED is an ACK with a payload, the others have the opcode of their own.
  if ((message->type == MigrationType::kNakStopped) !=
      (packet.header.opcode == wire::Opcode::kRcAck)) {
    return false;
  }
  switch (message->type) {
    case MigrationType::kHello:
    case MigrationType::kHelloAck:
    case MigrationType::kHelloDone: return handle_hello(*message, from);
    default: break;
  }
  if (message->type == MigrationType::kMoved && message->echo != 0 && !ferry()) {
    return handle_redirect(*message, from, now);
  }
  if (!authentic(*message)) {
    // It knows us and we do not know it: our part of the handshake was lost. Until the next timeout
    // there is no time for the back-off of HELLO.
    if (!ferry() && from == peer && is_peer(message->source_qpn)) mig.due |= kDueHello;
    return false;
  }
  mig.unanswered = 0;
  switch (message->type) {
    case MigrationType::kResume: return handle_resume(*message, now);
    case MigrationType::kResumeAck: return handle_resume_ack(*message, now);
    case MigrationType::kPause:
    case MigrationType::kNakStopped:
    case MigrationType::kMoved: return handle_peer_stop(*message, now);
    case MigrationType::kHello:
    case MigrationType::kHelloAck:
    case MigrationType::kHelloDone:      // have no MAC: above
    case MigrationType::kLocate: break;  // of datagrams
  }
  return false;
}

// The slot of a name may be that of a place where the peer was when it told it (rdma_cm.md); its
// index never changes.
bool Connection::State::is_peer(std::uint32_t source_qpn) const {
  return source_qpn == rtr.peer_qpn ||
         (!ferry() && port::index_of(source_qpn) == port::index_of(rtr.peer_qpn));
}

bool Connection::State::learn(std::uint64_t cookie) {
  if (cookie == 0) return false;
  if (ferry()) return cookie == mig.peer_cookie;
  mig.peer_cookie = cookie;
  mig.peer_class = PeerClass::kFerry;
  mig.hello.stop();
  mig.due &= ~kDueHello;
  return true;
}

bool Connection::State::handle_hello(const MigrationMessage& message, const port::Endpoint& from) {
  if (from != peer || !is_peer(message.source_qpn)) return false;
  const bool echoed = message.echo == mig.cookie;
  if (message.type != MigrationType::kHello && !echoed) return false;
  if (echoed && !learn(message.cookie)) return false;
  if (echoed) rtr.peer_qpn = message.source_qpn;  // its virtual one: MACs are made with it
  mig.unanswered = 0;
  if (message.type == MigrationType::kHello) {
    mig.due |= kDueHelloAck;
    mig.hello_echo = message.cookie;
    if (mig.resume_pending) mig.due |= kDueResume;  // it probes: it has not heard us
  } else if (message.type == MigrationType::kHelloAck) {
    mig.due |= kDueHelloDone;
  }
  return true;
}

// MOVED of a stand-in that knows nothing of this pair: the peer's QP was made after its RNIC had
// left the place that its name tells. Our own cookie shows that it answers our HELLO, and only who
// is at the place that we send to is heard; so it can do no more than keep HELLO from its peer,
// which it can in any case.
bool Connection::State::handle_redirect(const MigrationMessage& message, const port::Endpoint& from,
                                        Time now) {
  if (from != peer || message.echo != mig.cookie || !is_peer(message.source_qpn)) return false;
  if (message.epoch <= mig.place_epoch) return false;
  if (port::index_of(message.wire_qpn) != port::index_of(peer_wire_qpn) ||
      port::udp_port_of_qpn(message.wire_qpn) != message.location.udp_port ||
      message.location.address.is_ipv4() != peer.address.is_ipv4()) {
    return false;
  }
  mig.place_epoch = message.epoch;
  relocate(message.location, message.wire_qpn, now);
  return true;
}

// What was sent to the old place was lost there; nothing of it was acknowledged.
void Connection::State::relocate(const port::Endpoint& location, std::uint32_t qpn, Time now) {
  cancel_requester();
  peer = location;
  peer_wire_qpn = qpn;
  mig.unanswered = 0;
  if (mig.paused) mig.probe.start(now, settings.probe_first);
  if (mig.resume_pending) mig.due |= kDueResume;
  if (!ferry()) {
    mig.peer_class = PeerClass::kUnknown;
    mig.presumed_standard = false;
    start_hello(now);
  }
}

void Connection::State::count_unanswered() {
  if (settings.enabled && ++mig.unanswered > settings.seek_after) host.seek(rtr.peer);
}

// A stop that was resumed from already is over: its late messages change nothing.
bool Connection::State::handle_peer_stop(const MigrationMessage& message, Time now) {
  if (message.epoch < mig.peer_epoch) return false;
  if (message.epoch == mig.peer_epoch && mig.peer_resumed) return false;
  if (message.epoch > mig.peer_epoch) {
    mig.peer_epoch = message.epoch;
    mig.peer_resumed = false;
    pause(now);
  }
  if (message.type != MigrationType::kMoved) return true;
  if (peer == message.location && peer_wire_qpn == message.wire_qpn) return true;
  peer = message.location;
  peer_wire_qpn = message.wire_qpn;
  mig.located = true;
  mig.probe.start(now, settings.probe_first);
  if (mig.resume_pending) {
    // Repeated also when the limit had ended that: the peer at the new place drops our probes.
    mig.due |= kDueResume;
    mig.resume.start(now, settings.resume_first);
    mig.resume.again(now, settings.resume_last);
  }
  return true;
}

bool Connection::State::psns_possible(const MigrationMessage& message) const {
  if (is_uc()) return true;  // what is lost leaves gaps on both sides
  if (requesting()) {
    const std::uint64_t expected = extend(message.expected_psn);
    if (expected < req.una || expected > req.max_sent) return false;
  }
  // A peer in RTR has no PSNs of its own yet, and we have received nothing then.
  return !rsp.requests_received || wire::psn_diff(rsp.expected_psn, message.first_unacked_psn) >= 0;
}

// Everything before the peer's ePSN has arrived; unfinished READs before it are asked for again
// under the PSNs they had.
void Connection::State::go_back_to_peer(std::uint32_t peer_expected_psn, Time now) {
  if (!requesting()) return;
  cancel_requester();
  if (is_uc()) return;  // to the beginning of the message
  acknowledge(extend(peer_expected_psn));
  if (!requesting()) return;
  go_back();
  progress(now);
}

bool Connection::State::handle_resume(const MigrationMessage& message, Time now) {
  if (!is_current(message, stopped_end())) return false;
  if (message.epoch == mig.peer_epoch && mig.peer_resumed) {
    mig.due |= kDueResumeAck;            // ours was lost
    req.retries_left = rts.retry_count;  // it could not answer before
    return true;
  }
  if (!psns_possible(message)) return false;
  mig.peer_epoch = message.epoch;
  mig.peer_resumed = true;
  mig.paused = false;
  mig.probe.stop();
  if (mig.resume_pending) {
    mig.due |= kDueResume;  // both have moved: it is heard at the new place
  } else {
    mig.limit_at = kNever;
  }

  cancel_requester();  // what was in flight was accounted at the old place
  peer = message.location;
  peer_wire_qpn = message.wire_qpn;
  mig.located = true;
  forget_responses();
  mig.due |= kDueResumeAck;
  go_back_to_peer(message.expected_psn, now);
  return true;
}

bool Connection::State::handle_resume_ack(const MigrationMessage& message, Time now) {
  if (!mig.resume_pending || message.epoch != mig.epoch || !psns_possible(message)) return false;
  // Our RESUME was kept for a peer that has moved as well, and whose own RESUME we have not heard
  // yet: its answer says where it is.
  if (!mig.located) {
    peer = message.location;
    peer_wire_qpn = message.wire_qpn;
  }
  mig.resume_pending = false;
  mig.resume.stop();
  mig.due &= ~kDueResume;
  if (mig.paused) {
    mig.probe.start(now + settings.probe_first, settings.probe_first);
  } else {
    mig.limit_at = kNever;
  }
  go_back_to_peer(message.expected_psn, now);
  return true;
}

// The requester will ask again for what it misses.
void Connection::State::forget_responses() {
  rsp.responses.clear();
  rsp.nak_state = ResponderState::NakState::kNone;
  rsp.nak_due = rsp.ack_due = false;
}

void Connection::State::migration_timeout(Time now) {
  if (mig.hello.at <= now) {
    if (mig.hellos_left > 0) {
      --mig.hellos_left;
      mig.due |= kDueHello;
      count_unanswered();
      mig.hello.again(now, settings.hello_last);
      const unsigned repeats = settings.hello_repeats - 1 - mig.hellos_left;
      if (repeats >= kHellosToStandardNic) mig.presumed_standard = true;
    } else {
      mig.hello.stop();
      mig.presumed_standard = true;
      if (mig.peer_class == PeerClass::kUnknown) mig.peer_class = PeerClass::kUnmodified;
    }
  }
  if (mig.probe.at <= now) {
    mig.due |= kDueHello;
    count_unanswered();
    mig.probe.again(now, settings.probe_last);
  }
  if (mig.resume.at <= now) {
    mig.due |= kDueResume;
    count_unanswered();
    mig.resume.again(now, settings.resume_last);
  }
  if ((mig.paused || mig.resume_pending) && mig.limit_at == kNever) {
    mig.limit_at = now + settings.paused_limit;  // loaded from a record, which has no clock
  }
  if (mig.limit_at <= now) {
    // With nothing to send the QP only falls silent: a request posted later fails at once, and a
    // late RESUME is still heard.
    mig.probe.stop();
    mig.resume.stop();
    if (is_uc()) {
      // It goes on into the void, as towards any peer that is not there.
      mig.paused = mig.resume_pending = false;
      mig.limit_at = kNever;
    } else if (is_waited_for()) {
      fail(req.queue.head(), Status::kRetryExceeded);
    }
  }
}

// --- What the RNIC asks for ---------------------------------------------------------------------

void Connection::prepare(Time now) {
  State& s = *state_;
  if (s.ferry() || !s.speaks() || s.mig.stopped) return;
  if (s.mig.hello.at != kNever) {
    s.mig.due |= kDueHello;  // it is being asked: once more, but not from the first repeat on
    return;
  }
  s.mig.peer_class = PeerClass::kUnknown;
  s.start_hello(now);
}

bool Connection::finishing() const {
  const State& s = *state_;
  return s.receiving() && !s.ferry() && !s.rsp.responses.empty();
}

bool Connection::State::enter_stopped() {
  if (mig.stopped) return false;
  mig.stopped = true;
  mig.due = 0;
  if (!receiving()) return false;
  ++mig.epoch;
  cancel_requester();
  mig.resume_pending = false;
  return settings.enabled && ferry();
}

void Connection::stop(Time) {
  // Lost, it does no harm: the stand-in answers what the peer sends.
  if (state_->enter_stopped()) state_->send_message(state_->message(MigrationType::kPause));
}

// A UC peer that is not told loses what it sends meanwhile; one of unknown kind may not ask.
bool Connection::idle() const {
  const State& s = *state_;
  return s.speaks() && s.ferry() && !s.is_uc() && !s.silent() && s.mig.due == 0 &&
         s.req.queue.empty() && !s.responses_due() && s.rsp.message == RequestKind::kNone &&
         !s.rsp.has_receive;
}

void Connection::stop_untold() {
  state_->enter_stopped();
}

std::vector<std::byte> Connection::stand_in_entry(const port::Address&) const {
  std::vector<std::byte> entry;
  if (!state_->receiving()) return entry;
  StoppedEnd peer = state_->stopped_end();
  if (!state_->mig.stopped) ++peer.epoch;
  wire::ByteWriter out(&entry);
  peer.save(out);
  return entry;
}

void Connection::State::announce(Time now) {
  mig.due = 0;
  mig.hello.stop();
  mig.probe.stop();
  mig.resume.stop();
  mig.limit_at = kNever;
  if (!receiving()) return;
  forget_responses();
  if (settings.enabled && ferry()) {
    mig.resume_pending = true;
    mig.located = false;
    mig.due |= kDueResume;
    mig.resume.start(now, settings.resume_first);
    mig.resume.again(now, settings.resume_last);
    mig.limit_at = now + settings.paused_limit;
    return;
  }
  if (mig.peer_class == PeerClass::kUnknown) start_hello(now);
  rsp.ack_due = !is_uc() && rsp.requests_received;
}

void Connection::located(const port::Endpoint& name, const port::Endpoint& location,
                         std::uint32_t epoch, Time now) {
  State& s = *state_;
  if (name != s.rtr.peer || s.mig.stopped || !s.speaks() || location == s.peer) return;
  if (epoch < s.mig.place_epoch + s.mig.peer_epoch) return;
  s.mig.place_epoch = epoch - s.mig.peer_epoch;
  s.relocate(
      location,
      port::make_qpn(port::slot_of_udp_port(location.udp_port), port::index_of(s.peer_wire_qpn)),
      now);
}

void Connection::resume(std::uint32_t wire_qpn, bool rollback, Time now) {
  State& s = *state_;
  s.wire_qpn = wire_qpn;
  if (!s.mig.stopped) return;
  s.mig.stopped = false;
  if (rollback && s.receiving()) ++s.mig.epoch;
  s.announce(now);
}

// A QP that is Stopped tells its peer when it resumes.
void Connection::set_path(const port::Endpoint& peer, std::uint32_t wire_qpn, Time now) {
  State& s = *state_;
  s.cancel_requester();
  s.peer = s.rtr.peer = peer;
  s.peer_wire_qpn = s.rtr.peer_qpn;
  s.wire_qpn = wire_qpn;
  if (s.mig.stopped) return;
  ++s.mig.epoch;
  s.announce(now);
}

}  // namespace ferry::transport
