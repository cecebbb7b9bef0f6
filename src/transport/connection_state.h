#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "port/port.h"
#include "transport/connection.h"
#include "transport/movable.h"
#include "transport/opcodes.h"
#include "transport/peer_retries.h"
#include "transport/send_queue.h"
#include "transport/stopped.h"
#include "transport/tail_probe.h"
#include "wire/migration.h"
#include "wire/psn.h"

// What requester, responder, completer and migration share: one Connection::State, whose functions
// are spread over the files named at each group.
namespace ferry::transport {

// PSNs of the requester are extended (send_queue.h): the first round starts here, so that "one
// before" never underflows.
inline constexpr std::uint64_t kPsnRound = 1ull << 24;
// PSNs that may be outstanding at once (clause 9.7.1): half of the circle, less one so that also
// the PSN after them compares as later.
inline constexpr std::uint64_t kPsnWindow = (1ull << 23) - 1;
// The most bytes of one QP in flight.
inline constexpr std::int64_t kMaxWindow = 16 << 20;
// What a packet takes of the Host's window beyond its payload: headers and ICRC have at most 64
// bytes.
inline constexpr std::int64_t kPacketOverhead = port::window_charge(64);

// `delay` from now; kNever stays kNever.
inline Time deadline(Time now, Time delay) {
  return delay == kNever ? kNever : now + delay;
}

// What answers a READ, an atomic, an ATOMIC WRITE or a FLUSH: PSNs first_psn .. first_psn + psns -
// 1, `sent` of them already.
struct Response {
  RequestKind kind = RequestKind::kRead;
  std::uint32_t first_psn = 0;
  std::uint32_t psns = 1;
  std::uint32_t sent = 0;
  std::uint32_t msn = 0;
  std::uint64_t address = 0;  // kRead
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;
  std::uint64_t original = 0;  // kAtomic
  std::uint32_t srqn = 0;      // XRC
  bool duplicate = false;
};

// The responder resources (clause 9.7.5.1.2): what the last max_dest_rd_atomic requests that take
// one returned. A requester has no more of them outstanding, so whatever it repeats is here, or was
// never an atomic. READs are executed again; they only take their place.
struct SavedResult {
  std::uint32_t psn = 0;
  RequestKind kind = RequestKind::kRead;
  std::uint64_t original = 0;  // kAtomic
};
class SavedResults {
 public:
  void push(const SavedResult& result, std::size_t most) {
    while (results_.size() >= most) results_.erase(results_.begin());
    results_.push_back(result);
  }
  // The newest: a PSN may have come round.
  const SavedResult* find(std::uint32_t psn, RequestKind kind) const {
    const auto found = std::find_if(results_.rbegin(), results_.rend(), [&](const auto& result) {
      return result.psn == psn && result.kind == kind;
    });
    return found == results_.rend() ? nullptr : &*found;
  }
  const std::vector<SavedResult>& all() const { return results_; }  // oldest first
  void reserve(std::size_t most) { results_.reserve(most); }

 private:
  std::vector<SavedResult> results_;
};

// Requests in flight that a response will answer (requests, not WQEs): their ends, oldest first; at
// most max_rd_atomic, which is mostly far below the 255 that it may be.
class RdAtomicsInFlight {
 public:
  void reserve(std::size_t most) { ends_.reserve(most); }
  void push(std::uint64_t end_psn) { ends_.push_back(end_psn); }
  void answered_before(std::uint64_t psn) {
    const auto later =
        std::find_if(ends_.begin(), ends_.end(), [psn](std::uint64_t end) { return end > psn; });
    ends_.erase(ends_.begin(), later);
  }
  void clear() { ends_.clear(); }
  unsigned count() const { return static_cast<unsigned>(ends_.size()); }

 private:
  std::vector<std::uint64_t> ends_;
};

struct RequesterState {
  explicit RequesterState(SendQueue storage) : queue(std::move(storage)) {}
  explicit RequesterState(const QueueLimits& limits)
      : queue(limits.max_send_wr, limits.max_send_sge, limits.max_inline) {}

  SendQueue queue;
  std::uint64_t una = kPsnRound;       // first unacknowledged PSN
  std::uint64_t next = kPsnRound;      // next PSN to send; goes back on loss
  std::uint64_t max_sent = kPsnRound;  // one after the last PSN ever sent
  std::uint64_t cursor = 0;            // the WQE that `next` belongs to, or queue.assigned()
  std::uint64_t next_ssn = 1;          // of the next WQE to be assigned
  unsigned pending_rd_atomics = 0;     // WQEs with has_response() in [head, assigned)
  RdAtomicsInFlight rd_atomics_in_flight;

  // End-to-end credits (clause 9.7.7.2.5): requests with SSN ≤ limit_ssn may be sent freely.
  bool unlimited = false;
  std::int64_t limit_ssn = 0;
  std::int64_t completed_ssn = 0;  // of the last WQE that completed
  std::uint64_t limited_psn =
      0;  // the packet sent beyond the limit; outstanding while in [una, next)

  // Reliability.
  unsigned retries_left = 0, rnr_retries_left = 0;
  Time nak_costs_from{};             // a sequence NAK before that time costs no retry
  std::uint64_t implied_nak_at = 0;  // `una` of the last go-back for lost READ responses
  Time ack_at = kNever;
  Time rnr_until = kNever;  // waiting after an RNR NAK
  TailProbe probe;
  bool drained_raised = false;

  // Window.
  std::int64_t in_flight = 0;  // bytes of [una, next), as accounted at the Host
  std::int64_t window = 0;
  std::int64_t threshold = 0;      // below it the window doubles per round trip
  std::uint64_t recover = 0;       // losses before this PSN were reacted to
  unsigned since_ack_request = 0;  // packets
};

struct ResponderState {
  explicit ResponderState(ReceiveRequest storage) : receive(std::move(storage)) {}
  explicit ResponderState(const QueueLimits& limits) {
    receive.sges.reserve(limits.max_receive_sge);
  }

  enum class NakState : std::uint8_t { kNone, kSequence, kRnr };

  std::uint32_t expected_psn = 0;
  std::uint32_t msn = 0;
  NakState nak_state =
      NakState::kNone;  // a NAK was given for expected_psn; packets after it are dropped silently

  // The message being received.
  RequestKind message = RequestKind::kNone;  // kSend or kWrite
  std::uint64_t offset = 0;                  // bytes of it received
  wire::Reth write;                          // kWrite
  bool has_receive = false;
  ReceiveRequest receive;
  std::uint64_t receive_length = 0;  // bytes the scatter list takes
  std::uint32_t receive_srqn = 0;    // XRC: whose WQE it is

  // What is to be sent, in this order: responses, then one acknowledgement.
  std::vector<Response> responses;  // in the order of PSNs; at most max_dest_rd_atomic
  SavedResults saved;
  bool ack_due = false;
  bool unanswered = false;  // received since the last acknowledgement, asked for or not
  bool nak_due = false;
  bool nak_fatal = false;  // sent in ERROR still
  std::uint8_t nak_syndrome = 0;
  std::uint32_t nak_psn = 0;

  bool requests_received = false;
  bool established_raised = false;
  bool advertised_zero = false;  // the last AETH gave no credits
};

// Migration messages to be sent at the next transmit(), bits.
enum Due : std::uint8_t {
  kDueHello = 1,
  kDueHelloAck = 2,
  kDueHelloDone = 4,
  kDueResume = 8,
  kDueResumeAck = 16,
  kDueStoppedAnswer = 32,
};

struct Backoff {
  Time at = kNever;
  Time delay{};
  void start(Time now, Time first) {
    at = now;
    delay = first;
  }
  // After one repetition at `now`.
  void again(Time now, Time last) {
    at = now + delay;
    delay = std::min(delay * 2, last);
  }
  void stop() { at = kNever; }
};

// What a QP is asked at each step of the data path. The answer is no, nearly always: one comparison
// tells so.
struct MigrationFlags {
  bool stopped = false;
  bool paused = false;          // the peer is stopped
  bool resume_pending = false;  // ours was not acknowledged yet: requests and acknowledgements wait
  std::uint8_t due = 0;         // Due

  bool any() const { return std::bit_cast<std::uint32_t>(*this) != 0; }
};

struct MigrationData : MigrationFlags {
  PeerClass peer_class = PeerClass::kUnknown;
  std::uint64_t cookie = 0, peer_cookie = 0;
  std::uint32_t epoch = 0;       // of our last stop
  std::uint32_t peer_epoch = 0;  // of the peer's last stop that we know of
  bool peer_resumed = true;      // ... which has been resumed

  // How many stops the peer's RNIC had behind it before the first of this QP's, at least: a place
  // that a directory or an RNIC's stand-in tells is of `place_epoch` + `peer_epoch` or later.
  std::uint32_t place_epoch = 0;
  unsigned unanswered = 0;  // repetitions since the peer was last heard

  bool located = false;  // RESUME or MOVED has told where the peer is, since our own RESUME
  // It has not answered at the UDP port of its QPN's slot: what is not Ferry's own goes to 4791.
  bool presumed_standard = false;

  std::uint64_t hello_echo = 0;                   // for kDueHelloAck
  std::unique_ptr<ControlPacket> stopped_answer;  // for kDueStoppedAnswer; few QPs ever have one
  unsigned hellos_left = 0;
  Backoff hello, probe, resume;
  Time limit_at = kNever;  // of Paused or of an unanswered RESUME
};

struct Connection::State {
  State(Host& host, const QueueLimits& limits, const MigrationSettings& settings,
        std::uint32_t virtual_qpn, std::uint32_t wire_qpn);

  Host& host;
  const QueueLimits limits;
  const MigrationSettings settings;
  const std::uint32_t virtual_qpn;
  std::uint32_t wire_qpn;
  QpState qp_state = QpState::kReset;
  RtrAttributes rtr;
  RtsAttributes rts;
  PeerRetries agreed;   // over the CM, if known
  port::Endpoint peer;  // where it is now
  std::uint32_t peer_wire_qpn = 0;
  Counters counters;

  RequesterState req;
  ResponderState rsp;
  MigrationData mig;

  // connection.cc
  bool receiving() const {
    return qp_state == QpState::kRtr || qp_state == QpState::kRts || qp_state == QpState::kSqd ||
           qp_state == QpState::kSqe;
  }
  bool requesting() const { return qp_state == QpState::kRts || qp_state == QpState::kSqd; }
  bool stopped() const { return kMovable && mig.stopped; }
  bool migrating() const { return kMovable && mig.any(); }
  bool silent() const { return migrating() && (mig.stopped || mig.paused || mig.resume_pending); }
  bool is_uc() const { return limits.type == ConnectionType::kUc; }
  wire::Service service() const {
    switch (limits.type) {
      case ConnectionType::kRc: return wire::Service::kRc;
      case ConnectionType::kUc: return wire::Service::kUc;
      default: return wire::Service::kXrc;
    }
  }
  bool acceptable(const SendRequest& request) const;
  void forget();
  // ERROR: the oldest WQE before `failed` completes with kFlush, `failed` with `status`, the others
  // with kFlush.
  void fail(std::uint64_t failed, Status status);
  void flush_all();
  void handle_packet(const wire::Packet& packet, const port::Endpoint& from, Time now);
  // A packet of the transport, not of the migration protocol, with the opcode of RC.
  void handle_transport(const wire::Packet& packet, Time now);
  EmitResult emit(OutPacket& packet);
  // A fresh header. `opcode` is RC's, the header's that of the connection's service.
  void address(wire::Header& header, wire::Opcode opcode, std::uint32_t psn) const;
  Deadlines deadlines() const;

  // requester.cc
  enum class Sendable : std::uint8_t { kNo, kWindow, kYes };
  // The request packet at PSN `psn` of the WQE `index`: `psns` PSNs (more than one for a READ),
  // `bytes` of payload (of the responses of a READ) from `offset` of the message on.
  struct RequestPacket {
    std::uint64_t index = 0, psn = 0;
    std::uint64_t offset_psns = 0, offset = 0;
    std::uint32_t psns = 0, bytes = 0;
    std::int64_t cost() const { return bytes + kPacketOverhead * std::int64_t{psns}; }
  };
  RequestPacket packet_at(std::uint64_t index, std::uint64_t psn) const;
  RequestPacket next_packet() const { return packet_at(req.cursor, req.next); }
  // Whether it may be sent now. kWindow: only `left`, the Host's window, forbids it.
  Sendable sendable(std::int64_t left) const;
  Sendable sendable() const { return all_begun() ? Sendable::kNo : sendable(room()); }
  bool all_begun() const { return req.cursor == req.queue.tail(); }
  bool credits_allow(const Wqe& wqe, const RequestPacket& packet) const;
  unsigned transmit_requests(Time now, unsigned budget);
  void start_wqe();
  void carry_out(Wqe& wqe);  // a local operation
  // Past local operations that were carried out: `cursor` never rests on one.
  void skip_local();
  void build_request(const RequestPacket& packet, OutPacket* out) const;
  // Which packets ask for an acknowledgement.
  bool interval_ends(std::int64_t left) const;
  bool may_be_quiet(const Wqe& wqe, Time now) const;
  void ask_now();
  bool is_unasked() const;  // some of what is under way: nobody will acknowledge it
  bool is_starved() const;
  // Whether the send queue has more than quiet messages that were sent: those may have arrived, and
  // nobody waits for them.
  bool is_waited_for() const;
  Time ack_deadline(Time now) const;
  void go_back();  // to una; nothing is in flight after it
  std::int64_t cost(const Wqe& wqe, std::uint64_t begin, std::uint64_t end) const;
  std::int64_t room() const { return host.window(peer); }
  std::int64_t packet_cost() const { return rtr.mtu + kPacketOverhead; }
  void check_drained();
  // The oldest WQE completes if it is a local operation that was carried out, and fails if sending
  // it did.
  void settle();
  void requester_timeout(Time now);
  void loss(bool timeout);  // reduces the window once per round trip

  // tail_probe.cc
  void probe_progress(Time now);  // something was acknowledged
  void probe_timeout(Time now);
  bool transmit_probe(Time now);
  bool transmit_query(Time now);

  // uc_requester.cc
  bool uc_sendable() const;
  unsigned transmit_uc(unsigned budget);
  // SQE: the oldest WQE completes with `status`, the others with kFlush (clause 10.3.1.5).
  void stop_sends(Status status);

  // completer.cc
  void handle_ack(const wire::Packet& packet, Time now);
  void handle_response(const wire::Packet& packet, Time now);
  // Everything before `end` but what waits for a response; false: that is in the way.
  bool acknowledge(std::uint64_t end);
  void release(const Wqe& wqe, std::uint64_t end);
  void complete_head();     // and what waited for it (settle)
  void complete_oldest();   // it alone
  void progress(Time now);  // restores retry counts, restarts the timer
  void update_credits(const wire::Aeth& aeth);
  void lost_response();  // an acknowledgement came past an unanswered READ or atomic
  std::uint64_t extend(std::uint32_t psn) const {
    return req.una + static_cast<std::int64_t>(
                         wire::psn_diff(psn, static_cast<std::uint32_t>(req.una & wire::kPsnMask)));
  }

  // responder.cc: requests
  void handle_request(const wire::Packet& packet);
  void handle_duplicate(const wire::Packet& packet);
  void handle_send(const wire::Packet& packet);
  void handle_write(const wire::Packet& packet);
  void handle_read(const wire::Packet& packet);
  void handle_atomic(const wire::Packet& packet);
  void handle_atomic_write(const wire::Packet& packet);
  void handle_flush(const wire::Packet& packet);
  bool select_srq(std::uint32_t srqn);  // false: not of this XRC target's domain
  bool responder_resource();            // false: all are in use, and the request was refused
  void respond(Response response);      // to the request with the expected PSN
  bool take_receive(const wire::Packet& packet);  // false: RNR NAK given, or refused
  bool opcode_fits(const wire::Packet& packet) const;
  void received(const wire::Packet& packet);
  void message_done(const wire::Packet& packet);
  void nak(std::uint8_t syndrome, std::uint32_t psn);
  // A fatal NAK: the QP goes to ERROR; the receive WQE of the message, if any, completes with
  // `status`.
  void refuse(std::uint8_t syndrome, std::uint32_t psn, Status status);

  // uc_responder.cc
  void handle_uc(const wire::Packet& packet);
  // False: the message is to be dropped.
  bool uc_send(const wire::Packet& packet);
  bool uc_write(const wire::Packet& packet);
  bool take_uc_receive();
  void uc_done(const wire::Packet& packet);
  void drop_message();
  void fail_receive(Status status);  // the WQE in use completes so; ERROR

  // responses.cc: what the responder sends
  unsigned transmit_responses(unsigned budget);
  bool acknowledgement_due() const { return rsp.responses.empty() && (rsp.nak_due || rsp.ack_due); }
  unsigned transmit_acknowledgement();
  bool responses_due() const { return !rsp.responses.empty() || rsp.ack_due || rsp.nak_due; }
  EmitResult send_response(Response& response);
  EmitResult send_acknowledgement();
  wire::Aeth ack_aeth(std::uint32_t msn);

  // migration.cc
  bool ferry() const { return mig.peer_class == PeerClass::kFerry; }
  port::Endpoint peer_port() const;  // for all but migration messages
  PeerRetries peer_retries() const;
  bool speaks() const { return kMovable && settings.enabled && receiving(); }
  void start_hello(Time now);
  // False: not from the peer, too old, or impossible; it counts as forged.
  bool handle_migration(const wire::Packet& packet, const port::Endpoint& from, Time now);
  bool handle_hello(const wire::MigrationMessage& message, const port::Endpoint& from);
  bool learn(std::uint64_t cookie);  // stores the peer's cookie, which came with a valid echo
  // The peer is stopped: PAUSE, NAK_STOPPED, MOVED.
  bool handle_peer_stop(const wire::MigrationMessage& message, Time now);
  bool handle_redirect(const wire::MigrationMessage& message, const port::Endpoint& from, Time now);
  bool is_peer(std::uint32_t source_qpn) const;
  void relocate(const port::Endpoint& location, std::uint32_t qpn, Time now);
  void count_unanswered();
  bool handle_resume(const wire::MigrationMessage& message, Time now);
  bool handle_resume_ack(const wire::MigrationMessage& message, Time now);
  void announce(Time now);  // we are elsewhere: goes on there, after RESUME to a ferry peer
  void forget_responses();
  void answer_while_we_are_stopped(const wire::Packet& packet, const port::Endpoint& from);
  bool authentic(const wire::MigrationMessage& message) const;
  bool psns_possible(const wire::MigrationMessage& message) const;
  void go_back_to_peer(std::uint32_t peer_expected_psn, Time now);
  void cancel_requester();  // timers off, counts restored, nothing in flight
  void pause(Time now);
  bool enter_stopped();  // true: and there is somebody to tell
  wire::MigrationMessage message(wire::MigrationType type) const;
  bool send_message(const wire::MigrationMessage& message);
  unsigned transmit_migration();
  void migration_timeout(Time now);
  StoppedEnd stopped_end() const;

  // record.cc
  void save(wire::ByteWriter& out) const;
  bool load(wire::ByteReader& in);
};

}  // namespace ferry::transport
