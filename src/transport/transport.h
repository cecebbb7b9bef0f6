#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "port/endpoint.h"
#include "transport/host.h"
#include "transport/peer_retries.h"
#include "transport/types.h"
#include "wire/bytes.h"
#include "wire/header.h"

// One queue pair's transport as its RNIC sees it, of any service: a pure state machine. Packets,
// work requests and the time come in; packets, completions, memory operations (through Host) and
// the next deadline come out. No I/O, no clock, no locks: the RNIC calls it under its engine lock.
namespace ferry::transport {

// An XRC initiator has no receive queue and gets no requests; an XRC target has no send queue and
// takes receive WQEs from the XRC SRQ that each message names (annex A14).
enum class ConnectionType : std::uint8_t { kRc, kXrcInitiator, kXrcTarget, kUc };

struct QueueLimits {
  std::uint32_t max_send_wr = 0;
  std::uint32_t max_send_sge = 0;  // ≤ kMaxSge
  std::uint32_t max_inline = 0;    // bytes, ≤ kMaxInline
  std::uint32_t max_receive_sge = kMaxSge;
  bool shared_receive_queue = false;  // then no end-to-end credits are sent; true for XRC
  ConnectionType type = ConnectionType::kRc;
};

// Attributes of INIT→RTR (clause 11.2.5.2). Ranges were checked by the RNIC.
struct RtrAttributes {
  port::Endpoint peer;         // where the peer's wire QPN is reached
  std::uint32_t peer_qpn = 0;  // virtual QPN of the peer
  std::uint32_t peer_wire_qpn =
      0;  // where packets go; 0: the same as peer_qpn (a peer that has not moved)
  std::uint32_t mtu = 1024;        // bytes of payload: 256, 512, 1024, 2048, 4096
  std::uint32_t expected_psn = 0;  // rq_psn
  std::uint8_t max_dest_rd_atomic = 0;
  std::uint8_t min_rnr_timer = 0;  // code, 5 bits (clause 9.7.5.2.8)
};

struct RtsAttributes {
  std::uint32_t next_psn = 0;    // sq_psn
  std::uint8_t timeout = 0;      // code, 5 bits: 4.096 us * 2^timeout, 0 = never
  std::uint8_t retry_count = 0;  // 3 bits
  std::uint8_t rnr_retry = 0;    // 3 bits, 7 = for ever
  std::uint8_t max_rd_atomic = 0;
};

// Settings that verbs does not have. Times are absolute limits from the moment the state is
// entered.
struct MigrationSettings {
  bool enabled = true;                              // off: behaves as an unmodified RoCEv2 NIC
  Time paused_limit = std::chrono::seconds(60);     // then kRetryExceeded
  Time hello_first = std::chrono::milliseconds(1);  // back-off of HELLO: doubles up to hello_last
  Time hello_last = std::chrono::milliseconds(500);
  unsigned hello_repeats = 12;  // after the last: PeerClass::kUnmodified
  Time probe_first = std::chrono::milliseconds(10);
  Time probe_last = std::chrono::milliseconds(500);
  Time resume_first = std::chrono::milliseconds(1);
  Time resume_last = std::chrono::milliseconds(200);
  unsigned seek_after = 4;  // repetitions without an answer, before the directory is asked
};

// A thread is woken for a strict deadline. A lenient one may pass some milliseconds before, if
// nobody looks by himself.
struct Deadlines {
  Time strict = kNever, lenient = kNever;
  Time first() const { return std::min(strict, lenient); }
};

// What `ferry ps` and the move's report show of a QP.
struct TransportStatus {
  QpState state = QpState::kReset;
  MigrationState migration = MigrationState::kNone;
  PeerClass peer_class = PeerClass::kUnknown;
  std::uint32_t virtual_qpn = 0, wire_qpn = 0;
  std::uint32_t peer_qpn = 0, peer_wire_qpn = 0;
  port::Endpoint peer;  // where it is reached now
  std::uint32_t epoch = 0;
  std::uint32_t next_psn = 0, first_unacked_psn = 0, expected_psn = 0;
  std::uint32_t unacked_psns = 0;  // next_psn - first_unacked_psn
  bool resume_pending = false;     // RESUME sent and not yet acknowledged
  PeerRetries peer_retries;
  Counters counters;
};

// Functions of one service that mean nothing to another do nothing there.
class Transport {
 public:
  virtual ~Transport() = default;

  // --- State transitions (legality is the RNIC's business, qp_state.h)
  virtual void reset() = 0;  // any → RESET: forgets everything, completes nothing
  virtual void init() = 0;   // RESET → INIT
  virtual void to_rtr(const RtrAttributes& attributes, Time now) = 0;
  virtual void to_rts(const RtsAttributes& attributes, Time now) = 0;
  // RTS ↔ SQD, and SQE → RTS; raises kSqDrained when drained.
  virtual void set_sqd(bool draining) = 0;
  virtual void to_error(Time now) = 0;  // any → ERROR: every WQE completes with kFlush
  virtual QpState state() const = 0;
  // What the peer's QP was told over the CM, in any state before ERROR; forgotten in RESET.
  virtual void set_peer_retries(const PeerRetries& /*peer*/) {}
  // Changes that RTS → RTS and SQD allow.
  virtual void set_min_rnr_timer(std::uint8_t /*code*/) {}
  // Changes that SQD → SQD allows; next_psn is left alone. Timers that run keep their time.
  virtual void set_limits(const RtsAttributes& /*attributes*/,
                          std::uint8_t /*max_dest_rd_atomic*/) {}
  // SQD → SQD with another primary path (clause 11.2.5.2): the same QP of the peer is reached at
  // `peer` from now on, and ours has this wire QPN there. What was sent and not acknowledged is
  // sent again on the new path. A peer of our kind is told by RESUME, as after a move: the path
  // holds once both sides have changed it, and until then nothing is lost.
  virtual void set_path(const port::Endpoint& /*peer*/, std::uint32_t /*wire_qpn*/, Time /*now*/) {}
  virtual void set_qkey(std::uint32_t /*qkey*/) {}  // UD, in any state

  // --- Work requests
  // Copies the request into the send queue. 0, ENOMEM (queue full), EINVAL (state RESET, INIT or
  // RTR; what the service or the queue's limits do not allow; length > kMaxMessage). `length` is
  // the sum of the SGEs' lengths. In the ERROR and SQE states the request is taken and completes
  // with kFlush. While Stopped it is only queued.
  virtual int post_send(const SendRequest& request) = 0;
  // Takes back what was posted since posted() gave this number, when nothing else was called in
  // between. Requests that completed at once (in ERROR) stay posted.
  virtual std::uint64_t posted() const = 0;
  virtual void take_back(std::uint64_t posted) = 0;
  // A receive WQE was posted: credits may be sent, a waiting message may go on. In ERROR the RNIC
  // flushes it by itself.
  virtual void receive_posted(Time now) = 0;

  // --- Events in
  // A packet whose ICRC was verified and whose dest_qpn is this QP's wire QPN, or the multicast QPN
  // of a group that it is attached to.
  virtual void handle_packet(const wire::Packet& packet, const port::Endpoint& from, Time now) = 0;
  // Timers that are due.
  virtual void handle_timeout(Time now) = 0;

  // --- What to do next
  // Sends what can be sent, at most `budget` packets (fairness among QPs). Returns the number of
  // packets emitted and of local operations (LOCAL_INV, BIND_MW) carried out; has_work() tells
  // whether more could be sent now, given room in the port; waits_for_window() that only
  // Host::window() forbids it: the RNIC tries again when acknowledgements for any QP to that peer
  // came in.
  virtual unsigned transmit(Time now, unsigned budget) = 0;
  virtual bool has_work() const = 0;
  // All that could be sent now is one acknowledgement, which the peer can wait for.
  virtual bool only_acknowledges() const { return false; }
  // Whether the peer was asked for an acknowledgement or a response that has not come yet.
  virtual bool awaits_answer() const { return false; }
  // Before it ends: what the peer has sent without asking is acknowledged, too, with the next
  // transmit(). False: nothing is left to acknowledge.
  virtual bool acknowledge_rest() { return false; }
  virtual bool waits_for_window() const = 0;
  // When handle_timeout() must be called next; kNever without timers.
  virtual Deadlines deadlines() const = 0;
  Time next_deadline() const { return deadlines().first(); }

  // --- Migration (docs/protocol.md, docs/wire.md)
  // Asks an unknown peer once more whether it is of our kind (HELLO). The RNIC waits for a moment
  // before stop().
  virtual void prepare(Time now) = 0;
  // True while an unmodified peer still has a READ response of ours in progress, which must be
  // finished before stop().
  virtual bool finishing() const = 0;
  // Enters Stopped with the next epoch and sends PAUSE to a ferry peer. From here on nothing is
  // sent or received; posting queues.
  virtual void stop(Time now) = 0;
  // True when a stop would change nothing but the epoch, and PAUSE would tell its peer nothing that
  // it must know before it sends again: a ferry peer of a reliable QP, and nothing under way.
  virtual bool idle() const { return false; }
  // stop() of an idle QP, without PAUSE: NAK_STOPPED tells its peer if it sends.
  virtual void stop_untold() {}
  // One stand-in entry for this QP (stand_in.h) on the socket at `local`, empty when it has no peer
  // there. Only while Stopped; of an idle QP also ahead of its stop, as it will be then.
  virtual std::vector<std::byte> stand_in_entry(const port::Address& local) const = 0;
  // A rollback or the arrival at a new place: the QP has this wire QPN now, tells its peer, and
  // goes on. `rollback` raises the epoch once more.
  virtual void resume(std::uint32_t wire_qpn, bool rollback, Time now) = 0;
  // A directory's answer to Host::seek(): the RNIC `name` is at `location`, after `epoch` stops.
  // What is older than what the QP knows itself changes nothing.
  virtual void located(const port::Endpoint& name, const port::Endpoint& location,
                       std::uint32_t epoch, Time now) = 0;

  // Object record of a QP (docs/image.md): everything but limits and QPNs, which the RNIC's record
  // has. Any state; typically Stopped. load() needs a fresh transport and gives one that is Stopped
  // where the saved one was. False: the bytes contradict themselves; the transport is unusable
  // then.
  virtual void save(wire::ByteWriter& out) const = 0;
  virtual bool load(wire::ByteReader& in) = 0;

  virtual TransportStatus status() const = 0;
};

}  // namespace ferry::transport
