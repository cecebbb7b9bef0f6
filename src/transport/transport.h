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

// The transport of one queue pair of any service, as its RNIC sees it: a pure state machine.
// Packets, work requests and the time come in; packets, completions, memory operations (through
// Host) and the next deadline come out. It has no I/O, no clock and no locks: the RNIC calls it
// under its engine lock.
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

// Attributes of INIT→RTR (clause 11.2.5.2). The RNIC has checked their ranges.
struct RtrAttributes {
  port::Endpoint peer;              // where the peer's wire QPN is reached
  std::uint32_t peer_qpn = 0;       // virtual QPN of the peer
  std::uint32_t peer_wire_qpn = 0;  // where packets go; 0: peer_qpn, as of a peer that never moved
  std::uint32_t mtu = 1024;         // bytes of payload: 256, 512, 1024, 2048, 4096
  std::uint32_t expected_psn = 0;   // rq_psn
  std::uint8_t max_dest_rd_atomic = 0;
  std::uint8_t min_rnr_timer = 0;  // code, 5 bits (clause 9.7.5.2.8)
};

// Attributes of RTR→RTS.
struct RtsAttributes {
  std::uint32_t next_psn = 0;    // sq_psn
  std::uint8_t timeout = 0;      // code, 5 bits: 4.096 us * 2^timeout, 0 = never
  std::uint8_t retry_count = 0;  // 3 bits
  std::uint8_t rnr_retry = 0;    // 3 bits, 7 = for ever
  std::uint8_t max_rd_atomic = 0;
};

// Settings that verbs do not have. Limits count from the moment at which the state is entered.
struct MigrationSettings {
  bool enabled = true;                              // false: the QP behaves as unmodified
  Time paused_limit = std::chrono::seconds(60);     // then requests fail with kRetryExceeded
  Time hello_first = std::chrono::milliseconds(1);  // back-off of HELLO: doubles up to hello_last
  Time hello_last = std::chrono::milliseconds(500);
  unsigned hello_repeats = 12;  // HELLOs without an answer; then the peer is kUnmodified
  Time probe_first = std::chrono::milliseconds(10);
  Time probe_last = std::chrono::milliseconds(500);
  Time resume_first = std::chrono::milliseconds(1);
  Time resume_last = std::chrono::milliseconds(200);
  unsigned seek_after = 4;  // after so many repetitions without an answer each calls Host::seek()
};

// A sleeping thread is woken in time for a strict deadline. For a lenient one it may be woken some
// milliseconds late.
struct Deadlines {
  Time strict = kNever, lenient = kNever;
  Time first() const { return std::min(strict, lenient); }
};

// The state of a QP that `ferry ps` and the move's report show.
struct TransportStatus {
  QpState state = QpState::kReset;
  MigrationState migration = MigrationState::kNone;
  PeerClass peer_class = PeerClass::kUnknown;
  std::uint32_t virtual_qpn = 0, wire_qpn = 0;
  std::uint32_t peer_qpn = 0, peer_wire_qpn = 0;
  port::Endpoint peer;  // where the peer is reached now
  std::uint32_t epoch = 0;
  std::uint32_t next_psn = 0, first_unacked_psn = 0, expected_psn = 0;
  std::uint32_t unacked_psns = 0;  // next_psn - first_unacked_psn
  bool resume_pending = false;     // RESUME sent and not yet acknowledged
  PeerRetries peer_retries;
  Counters counters;
};

// A function that means nothing to a service does nothing there.
class Transport {
 public:
  virtual ~Transport() = default;

  // --- State transitions (legality is the RNIC's business, qp_state.h)
  virtual void reset() = 0;  // any → RESET: forgets everything, and completes nothing
  virtual void init() = 0;   // RESET → INIT
  virtual void to_rtr(const RtrAttributes& attributes, Time now) = 0;
  virtual void to_rts(const RtsAttributes& attributes, Time now) = 0;
  // RTS ↔ SQD, and SQE → RTS; raises kSqDrained when drained.
  virtual void set_sqd(bool draining) = 0;
  virtual void to_error(Time now) = 0;  // any → ERROR: every WQE completes with kFlush
  virtual QpState state() const = 0;
  // Tells the retries of the peer's QP that were agreed over the CM, in any state before ERROR;
  // reset() forgets them.
  virtual void set_peer_retries(const PeerRetries& /*peer*/) {}
  // The change that RTS → RTS and SQD allow; `code` has 5 bits.
  virtual void set_min_rnr_timer(std::uint8_t /*code*/) {}
  // The changes that SQD → SQD allows; next_psn is left alone. Timers that run keep their time.
  virtual void set_limits(const RtsAttributes& /*attributes*/,
                          std::uint8_t /*max_dest_rd_atomic*/) {}
  // SQD → SQD with another primary path (clause 11.2.5.2): the same QP of the peer is reached at
  // `peer` from now on, and ours has the wire QPN `wire_qpn` on that path. Requests that were sent
  // and not acknowledged are sent again on the new path. RESUME tells a peer of our kind, as after
  // a move: the path works once both sides have changed it, and until then nothing is lost.
  virtual void set_path(const port::Endpoint& /*peer*/, std::uint32_t /*wire_qpn*/, Time /*now*/) {}
  virtual void set_qkey(std::uint32_t /*qkey*/) {}  // UD, in any state

  // --- Work requests
  // Copies the request into the send queue. Returns 0, ENOMEM (queue full) or EINVAL (state RESET,
  // INIT or RTR; a request that the service or the queue's limits do not allow; length >
  // kMaxMessage). In the ERROR and SQE states the request is taken and completes with kFlush. While
  // Stopped it is only queued.
  virtual int post_send(const SendRequest& request) = 0;
  // Takes back the requests that were posted since posted() gave this number, if nothing else was
  // called in between. Requests that completed at once (in ERROR) stay posted.
  virtual std::uint64_t posted() const = 0;
  virtual void take_back(std::uint64_t posted) = 0;
  // A receive WQE was posted: if the last AETH gave the peer no credits, an acknowledgement gives
  // it some. In ERROR the RNIC flushes the WQE by itself.
  virtual void receive_posted(Time now) = 0;

  // --- Events in
  // Handles a packet whose ICRC was verified and whose dest_qpn is this QP's wire QPN.
  virtual void handle_packet(const wire::Packet& packet, const port::Endpoint& from, Time now) = 0;
  // Handles the timers that are due.
  virtual void handle_timeout(Time now) = 0;

  // --- What to do next
  // Sends all due migration messages, and then other packets until `budget` packets were sent
  // (fairness among QPs). Returns the number of packets emitted and of local operations (LOCAL_INV,
  // BIND_MW) carried out. has_work() tells whether more could be sent now, given room in the port;
  // waits_for_window(), whether only Host::window() forbids it: then the RNIC tries again when
  // acknowledgements for any QP to that peer have come.
  virtual unsigned transmit(Time now, unsigned budget) = 0;
  virtual bool has_work() const = 0;
  // Whether all that could be sent now is one acknowledgement, which can wait.
  virtual bool only_acknowledges() const { return false; }
  // Whether the peer was asked for an acknowledgement or a response that has not come yet.
  virtual bool awaits_answer() const { return false; }
  // Before the QP ends: the next transmit() acknowledges also the requests for which the peer asked
  // no acknowledgement. False: nothing is left to acknowledge.
  virtual bool acknowledge_rest() { return false; }
  virtual bool waits_for_window() const = 0;
  // When handle_timeout() must be called next; kNever without timers.
  virtual Deadlines deadlines() const = 0;
  Time next_deadline() const { return deadlines().first(); }

  // --- Migration (docs/protocol.md, docs/wire.md)
  // Asks an unknown peer once more whether it is of our kind (HELLO). The RNIC waits for a moment
  // before stop().
  virtual void prepare(Time now) = 0;
  // True while responses to a peer that is not ferry are in progress (READs), which must be
  // finished before stop().
  virtual bool finishing() const = 0;
  // Enters Stopped with the next epoch and sends PAUSE to a ferry peer. From then on the QP takes
  // no packets and sends only answers (stopped.h); posted requests wait in the queue.
  virtual void stop(Time now) = 0;
  // True when a stop would change nothing but the epoch, and the peer need not know of it before it
  // sends again: the peer of a reliable QP is ferry, and nothing is under way.
  virtual bool idle() const { return false; }
  // Stops an idle QP without PAUSE: if the peer sends, NAK_STOPPED tells it.
  virtual void stop_untold() {}
  // The stand-in entry of this QP (stand_in.h) for the socket at `local`; empty when the QP
  // receives nothing there. Valid only while Stopped; for an idle QP also before its stop, as of
  // then.
  virtual std::vector<std::byte> stand_in_entry(const port::Address& local) const = 0;
  // After a rollback or the arrival at a new place: the QP has this wire QPN now, tells its peer,
  // and goes on. `rollback` raises the epoch once more.
  virtual void resume(std::uint32_t wire_qpn, bool rollback, Time now) = 0;
  // The directory's answer to Host::seek(): the RNIC `name` is at `location`, after `epoch` stops.
  // An answer that is older than what the QP knows changes nothing.
  virtual void located(const port::Endpoint& name, const port::Endpoint& location,
                       std::uint32_t epoch, Time now) = 0;

  // The object record of a QP (docs/image.md) has everything but limits and QPNs, which are in the
  // RNIC's record. save() works in any state, typically Stopped. load() needs a fresh transport,
  // which is Stopped afterwards if the saved one was. False: the bytes are malformed; then the
  // transport is unusable.
  virtual void save(wire::ByteWriter& out) const = 0;
  virtual bool load(wire::ByteReader& in) = 0;

  virtual TransportStatus status() const = 0;
};

}  // namespace ferry::transport
