#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/objects.h"
#include "port/endpoint.h"

// What an RNIC offers besides its objects so that its programs can move: it stops, gives away what
// keeps it in one place, tells what it is made of, and goes on elsewhere. rnic/ implements it; a
// commodity RNIC does not.
namespace ferry::device {

// How long the peer of a connection repeats its requests: attributes of its QP, as ibv_qp_attr has
// them. They are not on the wire: agreed on over rdma_cm (known), or assumed.
struct PeerRetries {
  std::uint8_t timeout = 0, retry_count = 0, rnr_retry = 0;
  std::uint8_t known = 0;  // 0 or 1
};

// What `ferry ps` shows of a QP; addresses are wire addresses, QPNs without "wire" are virtual.
struct QpStatus {
  std::uint32_t qpn = 0, wire_qpn = 0, peer_qpn = 0, peer_wire_qpn = 0;
  std::uint8_t type = 0;        // ibv_qp_type
  std::uint8_t state = 0;       // ibv_qp_state
  std::uint8_t migration = 0;   // 0 none, 1 Stopped, 2 Paused
  std::uint8_t peer_class = 0;  // 0 unknown, 1 ferry, 2 unmodified
  port::Endpoint local, peer;
  std::uint32_t epoch = 0, next_psn = 0, first_unacked_psn = 0, expected_psn = 0;
  std::uint8_t resume_pending = 0;
  std::uint64_t sent_packets = 0, received_packets = 0, sent_bytes = 0, received_bytes = 0;
  std::uint64_t retransmitted_packets = 0, timeouts = 0, rnr_naks = 0, dropped = 0;
  // The latest pause: nanoseconds between the last packet from the peer before it and the first
  // after it; 0: none yet.
  std::uint64_t last_pause_ns = 0;
  PeerRetries peer_retries;
};

// Of which kind a device is: who understands its parcels. The values are part of messages and
// images.
enum class Kind : std::uint16_t { kFerry = 1 };  // rnic/

// What a parked context leaves with ferryd, and what it is given to go on with. It is opaque to all
// but those who know devices of its kind.
struct Parcel {
  Kind kind = Kind::kFerry;
  std::vector<int> descriptors;  // owned by whoever holds the struct
  std::vector<std::byte> bytes;
};

// Objects of a dump (TardiS, table 2). The values are part of the image format.
enum class ObjectType : std::uint16_t {
  kContext = 0,
  kPd = 1,
  kMr = 2,
  kCq = 3,
  kQp = 5,
  kCompChannel = 6,
  kSrq = 7,
  kXrcd = 8,
  kMw = 9,
  kAh = 10
};

// Commands of ibv_restore_object (TardiS, listing 1).
enum class RestoreCommand : int { kCreate = 1, kRefill = 2, kMrKeys = 3 };

// Told of what concerns moves, as an EventSink is of the rest.
class MoveSink {
 public:
  virtual ~MoveSink() = default;
  // MovableContext::sought() has something.
  virtual void seeks() {}
};

class MovableContext : public Context {
 public:
  // Finds out of which kind the peers of unknown class are (waits some milliseconds at most),
  // before a stop.
  virtual void prepare() = 0;
  // Every QP becomes Stopped, and waits at most so long for what is under way; `unacked_psns` counts
  // what was sent and not acknowledged, over all QPs. From here on verbs work on memory only. On
  // failure the context goes on.
  virtual int quiesce(std::chrono::nanoseconds limit, std::uint32_t* unacked_psns) = 0;
  // After quiesce(): closes every descriptor of the RNIC but those of the parcel, which it gives
  // away.
  virtual int park(Parcel* out) = 0;
  // The way back: takes a parcel (the same on the same host after a rollback, another one on another
  // host after a move). On failure its descriptors stay the caller's.
  virtual int unpark(const Parcel& parcel) = 0;
  // After unpark(), or after quiesce() alone: QPs go on, and tell their peers (RESUME).
  virtual void resume(bool rollback) = 0;

  // One record per object, device-independent (docs/image.md), of a quiesced context.
  virtual int describe(std::vector<std::byte>* out, int* count) = 0;
  // Restores one object from its record. kCreate makes it (and gives it in *object), kRefill brings
  // the queues and the transport's state of *object back, kMrKeys gives an MR (*object, registered
  // by the caller with kCreate or reg_mr) the keys of the record. EINVAL: malformed; ENOENT: names
  // an object not restored yet.
  virtual int restore(ObjectType type, RestoreCommand command, std::span<const std::byte> record,
                      Object** object) = 0;

  virtual void status(std::vector<QpStatus>* out) = 0;
  // rdma_cm has told the peer of this QP (virtual QPN) what to use. False: there is no such QP.
  virtual bool set_peer_retries(std::uint32_t /*qpn*/, const PeerRetries& /*peer*/) {
    return false;
  }
  // Where the RNIC is, as a parcel without descriptors; it says nothing while it is parked.
  virtual Parcel place() = 0;
  // The names of RNICs that peers of this one's QPs belong to and that do not answer
  // where they were last known to be; each once. MoveSink::seeks() told that there are some.
  virtual void sought(std::vector<port::Endpoint>* /*out*/) {}
  // What a directory says of one: it is at `location`, after `epoch` stops.
  virtual void located(const port::Endpoint& /*name*/, const port::Endpoint& /*location*/,
                       std::uint32_t /*epoch*/) {}
};

// A device whose contexts can move. Opened as an Rnic it is one of any kind.
class MovableRnic : public Rnic {
 public:
  // As Rnic::open(); `moves` outlives the context too.
  virtual std::unique_ptr<MovableContext> open_movable(EventSink& sink, MoveSink& moves,
                                                       int* error) = 0;
  std::unique_ptr<Context> open(EventSink& sink, int* error) final {
    static MoveSink nobody;
    return open_movable(sink, nobody, error);
  }
};

}  // namespace ferry::device
