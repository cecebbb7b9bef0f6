#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/objects.h"
#include "device/parcel.h"
#include "port/endpoint.h"

// What an RNIC offers beyond objects.h so that its programs can move: it stops, gives away what
// keeps it in one place, describes its objects, and goes on elsewhere. rnic/ implements this itself;
// virtual/ implements it for devices that do not: those of the kernel (hca/).
namespace ferry::device {

// How long the peer of a connection repeats its requests: attributes of its QP, as ibv_qp_attr has
// them. The packets do not carry them: both sides agreed on them over rdma_cm (known), or they are
// assumed.
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
  // The latest time that the QP was Paused: nanoseconds from the last packet of the peer before it
  // to the first one after it; 0: it never was.
  std::uint64_t last_pause_ns = 0;
  PeerRetries peer_retries;
};

// What a context has to tell the context at the other end of a connection, when the device speaks no migration
// messages. ferryd carries a letter, and does not open it. The ferryd of the sender's host has checked that the QP
// `from` is the sender's own. A letter of no bytes is one that ferryd gives back to its sender, which has the QP `to`,
// because no context of Ferry's has the QP `from`, or none has taken the letter in time.
struct Letter {
  struct End {
    port::Address gid;      // as the application at the other end has it in ibv_qp_attr
    std::uint32_t qpn = 0;  // virtual
    auto operator<=>(const End&) const = default;
  };
  End from, to;
  std::vector<std::byte> bytes;
};

// The UD QPs of a context that has moved: `known` are the names that peers know, each QPN under each
// GID, and `real` are the names of the same QPs where they are now.
struct DatagramQps {
  struct Gid {
    port::Address known, real;
    auto operator<=>(const Gid&) const = default;
  };
  struct Qpn {
    std::uint32_t known = 0, real = 0;
    auto operator<=>(const Qpn&) const = default;
  };
  std::vector<Gid> gids;
  std::vector<Qpn> qpns;
  auto operator<=>(const DatagramQps&) const = default;
};

// What a host's ferryd knows of programs that have moved with a device of the kernel: the GIDs that
// they have brought, and their UD QPs.
struct MovedNames {
  std::vector<port::Address> gids;
  std::vector<DatagramQps> datagram_qps;
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

// What becomes of a connection that rdma_cm of the kernel has made, when an end of it moves (docs/any_rnic.md).
enum class CmNews : std::uint8_t {
  kPeerMoves,  // the peer is about to move: its kernel may disconnect although its program does not
  kPeerStays,  // the peer's move is over, or was given up
  kDetached,   // the peer's kernel does not know the connection any more
  kDisconnected  // the peer's program has disconnected
};

// An RNIC tells a MoveSink what concerns moves, and an EventSink all else.
class MoveSink {
 public:
  virtual ~MoveSink() = default;
  // MovableContext::sought() has names to give.
  virtual void seeks() {}
  // MovableContext::take_letters() has letters, moved_datagram_qps() has changed, or progress() has something to do.
  virtual void has_letters() {}
  // There are news of the peer of the QP `qpn` (virtual). Must not call the context.
  virtual void cm_news(CmNews /*news*/, std::uint32_t /*qpn*/) {}
};

class MovableContext : public Context {
 public:
  // Called before a stop: finds out the class of peers whose class is unknown, and waits some
  // milliseconds at most.
  virtual void prepare() = 0;
  // Makes every QP Stopped, after waiting at most `limit` for what must be finished first.
  // *unacked_psns gets the number of PSNs that are sent and not acknowledged, over all QPs. From
  // here on verbs work on memory only. On failure (errno) the context goes on.
  virtual int quiesce(std::chrono::nanoseconds limit, std::uint32_t* unacked_psns) = 0;
  // After quiesce(): gives the descriptors of the parcel to the caller, and closes all others of
  // the RNIC.
  virtual int park(Parcel* out) = 0;
  // Undoes park(): takes a parcel over (the same one after a rollback, another one on another host
  // after a move). On failure its descriptors stay the caller's.
  virtual int unpark(const Parcel& parcel) = 0;
  // After unpark(), or after quiesce() alone: QPs go on, and tell their peers (RESUME).
  virtual void resume(bool rollback) = 0;

  // After quiesce(): appends one device-independent record per object (docs/image.md) to *out;
  // *count gets the number of records.
  virtual int describe(std::vector<std::byte>* out, int* count) = 0;
  // Restores one object from its record. kCreate makes it (and gives it in *object), kRefill brings
  // the queues and the transport's state of *object back, kMrKeys gives an MR (*object, which the
  // caller made with kCreate or reg_mr) the keys of the record. EINVAL: the record is malformed;
  // ENOENT: it names an object that is not restored yet; EEXIST: its handle, key or QPN is in use.
  virtual int restore(ObjectType type, RestoreCommand command, std::span<const std::byte> record,
                      Object** object) = 0;

  // For a device whose peers have to be told by letters. suspend_peers() asks the peers to stop, those of idle QPs
  // first: these may leave the device then. When peers_are_suspended(), quiesce() follows, or release_peers() lets the
  // peers go on. Until resume() both ends talk by letters. While progress() gives true, it is to be called again and
  // again.
  virtual void suspend_peers() {}
  virtual bool peers_are_suspended() { return true; }
  virtual void release_peers() {}
  virtual void take_letters(std::vector<Letter>* /*out*/) {}
  // ENOENT: there is no such connection; EINVAL: the letter is malformed.
  virtual int deliver(const Letter& /*letter*/) { return ENOENT; }
  virtual bool progress() { return false; }
  // Whether the context waits for an answer to a letter, other than a suspension. repeat_letters() writes the letters
  // again that the other ends may not have got: a ferryd that ends loses the letters that it carries.
  virtual bool awaits_letters() { return false; }
  virtual void repeat_letters() {}
  // Has the peer of a connection told kDisconnected, at once, and then the QP may have ended; or kDetached, when the
  // context has left its device: the peer hears of it when the context has entered one.
  virtual void tell_peer(const Letter::End& /*own*/, const Letter::End& /*peer*/, CmNews /*news*/) {
  }
  // Whether the application can name the GID that is at `index` of the device's table by the index `at`; name_gid()
  // lets it do so from now on. A device that the context has come to has GIDs that the application has never seen.
  virtual bool can_name_gid(std::uint8_t /*port*/, std::uint8_t index, std::uint8_t at) {
    return at == index;
  }
  virtual void name_gid(std::uint8_t /*port*/, std::uint8_t /*index*/, std::uint8_t /*at*/) {}
  // Gets all names that this host's ferryd knows of.
  virtual void moved(const MovedNames& /*names*/) {}
  // What others have to know of the context's UD QPs; nothing as long as the QPs have the names that peers know.
  virtual DatagramQps moved_datagram_qps() { return {}; }

  // The GIDs to which the application may send datagrams, as it knows them.
  virtual std::vector<port::Address> datagram_destinations() { return {}; }

  // What of the context cannot move, for people; null: nothing.
  virtual const char* obstacle() { return nullptr; }
  // What the device at a destination must have, as text (virtual/messages/needs.h); empty: the context needs no device
  // there, and makes its own.
  virtual std::string needs() { return {}; }

  virtual void status(std::vector<QpStatus>* out) = 0;
  // rdma_cm has agreed with the peer of this QP (virtual QPN) on `peer`. False: no such QP.
  virtual bool set_peer_retries(std::uint32_t /*qpn*/, const PeerRetries& /*peer*/) {
    return false;
  }
  // Where the RNIC is, as a parcel without descriptors; an empty one while it is parked.
  virtual Parcel place() = 0;
  // Appends the names of RNICs in which this RNIC's QPs have peers, and which do not answer where they were last known
  // to be. Each name is given once, after MoveSink::seeks() has told of it.
  virtual void sought(std::vector<port::Endpoint>* /*out*/) {}
  // A directory says where a sought RNIC is: at `location`, after `epoch` stops.
  virtual void located(const port::Endpoint& /*name*/, const port::Endpoint& /*location*/,
                       std::uint32_t /*epoch*/) {}
};

// A device whose contexts can move. A context that is opened by open() tells nobody what it seeks.
class MovableRnic : public Rnic {
 public:
  // As Rnic::open(); `moves` outlives the context, as `sink` does.
  virtual std::unique_ptr<MovableContext> open_movable(EventSink& sink, MoveSink& moves,
                                                       int* error) = 0;
  std::unique_ptr<Context> open(EventSink& sink, int* error) final {
    static MoveSink nobody;
    return open_movable(sink, nobody, error);
  }
};

}  // namespace ferry::device
