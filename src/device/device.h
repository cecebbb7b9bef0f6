#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "port/endpoint.h"

// The boundary: what any RNIC must offer Ferry. verbs/ owns every struct that the application sees
// and talks to an RNIC only through these classes; the RNIC of our own (rnic/), the recording fake
// of the tests (device/fake.h) and, later, a commodity RNIC implement them.
//
// Vocabulary is that of libibverbs, so that a commodity RNIC needs no translation; ibv_qp_init_attr
// and the like, which hold pointers to application structs, are replaced by structs that hold
// device objects. Functions return 0 or an errno value. Any thread may call any function of a
// context at any time; only the destruction of an object must not race with its use (as for
// libibverbs).
namespace ferry::device {

// IBV_ACCESS_FLUSH_GLOBAL and _PERSISTENT of later versions of verbs.h, and what such a device says
// in device_cap_flags_ex (the kernel's ABI).
inline constexpr std::uint32_t kFlushGlobal = 1u << 8;
inline constexpr std::uint32_t kFlushPersistent = 1u << 9;
inline constexpr std::uint64_t kDeviceFlushGlobal = 1ull << 38;
inline constexpr std::uint64_t kDeviceAtomicWrite = 1ull << 40;

// Device objects are made by a Context and given back with Context::destroy().
class Object {
 public:
  virtual ~Object() = default;
  void* cookie = nullptr;  // verbs/ puts the application's struct here; handed back in events
};

class Pd : public Object {};

// An XRC domain (clause 10.2.9): target QPs of it take receive WQEs from its XRC SRQs only.
class Xrcd : public Object {};

class Mr : public Object {
 public:
  virtual std::uint32_t lkey() const = 0;  // index | random | consumer:8, not guessable
  virtual std::uint32_t rkey() const = 0;
};

// Address, length and iova are fixed at registration.
struct MrInit {
  Pd* pd = nullptr;
  void* address = nullptr;
  std::size_t length = 0;  // bytes, 0 is allowed
  std::uint64_t iova = 0;  // what remote_addr and sge.addr count from
  unsigned access = 0;     // ibv_access_flags
};

// A memory window. Type 1 is bound by Qp::bind_mw(), type 2 by a request (IBV_WR_BIND_MW) that
// names it by handle(): verbs/ puts it into ibv_mw.handle, where the device reads it.
class Mw : public Object {
 public:
  virtual std::uint32_t rkey() const = 0;
  virtual std::uint32_t handle() const = 0;
};

// An address handle. verbs/ puts handle() into ibv_ah.handle, where the device reads it when a
// datagram is posted.
class Ah : public Object {
 public:
  virtual std::uint32_t handle() const = 0;
};

struct CqInit {
  int cqe = 0;              // wanted
  bool timestamps = false;  // poll_one() is asked for them
  bool ignore_overrun = false;
};

// What an extended CQ tells besides ibv_wc.
struct CompletionTimes {
  std::uint64_t clock = 0;      // ticks of Context::clock() when the completion was added
  std::uint64_t wallclock = 0;  // nanoseconds since the epoch
};

class Cq : public Object {
 public:
  // Up to `count` completions, oldest first; the number, or a negative value when the CQ has
  // overflowed. Data path: runs the engine when the CQ is empty.
  virtual int poll(int count, ibv_wc* out) = 0;
  // As poll(1, …), with the times of a CQ that was made with `timestamps`.
  virtual int poll_one(ibv_wc* out, CompletionTimes* times) {
    *times = {};
    return poll(1, out);
  }
  // As poll_one(), of what waits already (ibv_next_poll): an engine that runs here would tell of
  // completions by an event that this very call takes, and the program would wake for nothing.
  virtual int take_one(ibv_wc* out, CompletionTimes* times) { return poll_one(out, times); }
  // The next completion (with `solicited_only`: the next solicited or failed one) raises
  // EventSink::completion once.
  virtual int arm(bool solicited_only) = 0;
  virtual int resize(int cqe) = 0;
  virtual int capacity() const = 0;  // ≥ what was asked for
  // Moderation of events (ibv_modify_cq): one for every `count` completions, or `period`
  // microseconds after the first that none was raised for. A count of at most 1 or a period of 0:
  // one for each.
  virtual int moderate(std::uint16_t /*count*/, std::uint16_t /*period*/) { return EOPNOTSUPP; }
};

// A shared receive queue, plain or XRC (clause 10.2.9).
struct SrqInit {
  Pd* pd = nullptr;
  ibv_srq_attr attributes{};  // in: wanted, out: granted
  Xrcd* xrcd = nullptr;       // XRC only, with its CQ
  Cq* cq = nullptr;
};

class Srq : public Object {
 public:
  virtual int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) = 0;
  // IBV_SRQ_MAX_WR and IBV_SRQ_LIMIT; the limit event fires once when fewer WQEs than the limit are
  // left (clause 10.2.9.3).
  virtual int modify(const ibv_srq_attr& attributes, int mask) = 0;
  virtual int query(ibv_srq_attr* attributes) const = 0;
  virtual std::uint32_t number() const = 0;  // of an XRC SRQ, virtual; 0 otherwise
};

struct QpInit {
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;    // then cap.max_recv_* count nothing
  Xrcd* xrcd = nullptr;  // IBV_QPT_XRC_RECV only, which has neither PD nor CQs nor SRQ
  ibv_qp_cap cap{};      // in: wanted, out: granted (≥ wanted)
  ibv_qp_type type = IBV_QPT_RC;
  bool sq_sig_all = false;
  // UD: what it sends to a group does not come back to it (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB).
  bool block_multicast_loopback = false;
};

class Qp : public Object {
 public:
  virtual std::uint32_t qpn() const = 0;  // virtual: what the application sees, for life
  virtual ibv_qp_state state() const = 0;
  // Data path. On error *bad is the first request that was not taken; those before it were.
  virtual int post_send(ibv_send_wr* list, ibv_send_wr** bad) = 0;
  // All of the list, or on error none of it (ibv_wr_complete()).
  virtual int post_all(ibv_send_wr* list) = 0;
  virtual int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) = 0;
  // Checks every transition and attribute as clause 10.3.1 and ibv_modify_qp(3) say. EINVAL, and
  // the QP unchanged, when illegal.
  virtual int modify(const ibv_qp_attr& attributes, int mask) = 0;
  // Fills what is known; cap, state and everything that was set.
  virtual int query(ibv_qp_attr* attributes) const = 0;
  // ibv_modify_qp_rate_limit, in the state RTS; rate 0: no limit. The typical packet size is a
  // hint. EINVAL: another state, a rate beyond packet_pacing_caps, a burst without a rate.
  virtual int limit_rate(const ibv_qp_rate_limit_attr& /*attributes*/) { return EOPNOTSUPP; }
  // UD only. EINVAL: not a multicast GID; ENOMEM: too many groups.
  virtual int attach_mcast(const ibv_gid& /*gid*/, std::uint16_t /*lid*/) { return EOPNOTSUPP; }
  virtual int detach_mcast(const ibv_gid& /*gid*/, std::uint16_t /*lid*/) { return EOPNOTSUPP; }
  // A window of type 1 (ibv_bind_mw): posts the bind to the send queue; *rkey is valid from then
  // on.
  virtual int bind_mw(Mw* /*window*/, const ibv_mw_bind& /*bind*/, std::uint32_t* /*rkey*/) {
    return EOPNOTSUPP;
  }
};

// Events from an RNIC. Called from any thread, possibly under the RNIC's locks: must not call back
// into the RNIC and must not block.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void completion(Cq& cq) = 0;
  // IBV_EVENT_QP_* with `object` a Qp, IBV_EVENT_CQ_ERR with a Cq, IBV_EVENT_SRQ_* with a Srq, port
  // and device events with null.
  virtual void asynchronous(ibv_event_type type, Object* object) = 0;
  // Context::sought() has something.
  virtual void seeks() {}
};

// --- migration -----------------------------------------------------------------------------------

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

// One socket that passes to the stand-in (or comes back from it), with the QPs it served.
struct Slot {
  int descriptor = -1;  // owned by whoever holds the struct
  port::Endpoint local;
  std::uint32_t slot = 0;
  // The RNIC's name for life: the virtual GID of this family and the UDP port of the slot where it
  // was opened; port 0: it has none of this family. `epoch` counts its stops.
  port::Endpoint origin;
  std::uint32_t epoch = 0;
  bool has_origin() const { return origin.udp_port != 0; }
  std::vector<std::vector<std::byte>>
      entries;  // stand-in entries (transport/stand_in.h); empty on the way back
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

// What an RNIC has counted since it was opened. The names are those of the files that the kernel
// shows: counters/ (clause 16.1.3.5, port_xmit_data and port_rcv_data in words of 4 bytes) and
// hw_counters/.
struct Counter {
  enum class Group : std::uint8_t { kPort, kHardware };
  Group group = Group::kHardware;
  const char* name = nullptr;  // static
  std::uint64_t value = 0;
};

class Context {
 public:
  virtual ~Context() = default;

  virtual int query_device(ibv_device_attr_ex* out) = 0;
  virtual int query_port(std::uint8_t port_number, ibv_port_attr* out) = 0;
  virtual int query_gid(std::uint8_t port_number, unsigned index,
                        ibv_gid_entry* out) = 0;  // virtual GIDs
  virtual int query_pkey(std::uint8_t port_number, int index,
                         std::uint16_t* out) = 0;  // host order

  virtual int alloc_pd(Pd** out) = 0;
  virtual int reg_mr(const MrInit& init, Mr** out) = 0;
  virtual int create_cq(const CqInit& init, Cq** out) = 0;
  virtual int create_qp(QpInit* init, Qp** out) = 0;
  // What a device lacks, it refuses with EOPNOTSUPP.
  // An MR without memory (ibv_alloc_null_mr): what is read from it is 0, what is written to it is
  // gone. It has no rkey.
  virtual int alloc_null_mr(Pd* /*pd*/, Mr** /*out*/) { return EOPNOTSUPP; }
  // `flags` of ibv_rereg_mr; fields of `init` count as these say. On failure the MR is as before.
  virtual int rereg_mr(Mr* /*mr*/, int /*flags*/, const MrInit& /*init*/) { return EOPNOTSUPP; }
  virtual int alloc_mw(Pd* /*pd*/, ibv_mw_type /*type*/, Mw** /*out*/) { return EOPNOTSUPP; }
  virtual int create_ah(Pd* /*pd*/, const ibv_ah_attr& /*attributes*/, Ah** /*out*/) {
    return EOPNOTSUPP;
  }
  virtual int create_srq(SrqInit* /*init*/, Srq** /*out*/) { return EOPNOTSUPP; }
  virtual int open_xrcd(Xrcd** /*out*/) { return EOPNOTSUPP; }
  // Free-running, nanoseconds; what completion timestamps and ibv_query_rt_values_ex tell.
  virtual std::uint64_t clock() const { return 0; }
  // EBUSY while other objects use it; the object lives on then.
  virtual int destroy(Object* object) = 0;

  // Finds out of which kind the peers of unknown class are (waits some milliseconds at most),
  // before a stop.
  virtual void prepare() = 0;
  // Every QP becomes Stopped; `unacked_psns` counts what was sent and not acknowledged, over all
  // QPs. From here on verbs work on memory only.
  virtual int suspend(std::uint32_t* unacked_psns) = 0;
  // After suspend(): gives the sockets away and closes every descriptor of the RNIC.
  virtual int detach(std::vector<Slot>* out) = 0;
  // The way back: takes sockets (on the same host after a rollback, bound on another host after a
  // move).
  virtual int attach(std::vector<Slot> slots) = 0;
  // After attach(), or after suspend() alone: QPs go on, and tell their peers (RESUME).
  virtual void resume(bool rollback) = 0;
  // A child after fork(): the RNIC belongs to the parent; every call fails with ENODEV-like errors,
  // nothing hangs.
  virtual void abandon() = 0;
  // The process ends without closing it: what the RNIC owes its peers at once is sent.
  virtual void leave() {}

  // One record per object, device-independent (docs/image.md), of a suspended context.
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
  // Where the RNIC is: its slots, without descriptors and entries. None while it has given them
  // away.
  virtual void places(std::vector<Slot>* /*out*/) {}
  // The names (Slot::origin) of RNICs that peers of this one's QPs belong to and that do not answer
  // where they were last known to be; each once. EventSink::seeks() told that there are some.
  virtual void sought(std::vector<port::Endpoint>* /*out*/) {}
  // What a directory says of one: it is at `location`, after `epoch` stops.
  virtual void located(const port::Endpoint& /*name*/, const port::Endpoint& /*location*/,
                       std::uint32_t /*epoch*/) {}
  // Appends them. What it does not count, it leaves out.
  virtual void counters(std::vector<Counter>* /*out*/) {}
};

// Of port 1, as Context::query_port() and query_gid() tell it.
struct PortFacts {
  ibv_port_attr attributes{};
  std::vector<ibv_gid_entry> gids;
};

// A device that could be opened.
class Rnic {
 public:
  virtual ~Rnic() = default;
  virtual const std::string& name() const = 0;    // "ferry0"
  virtual const std::string& netdev() const = 0;  // "rdma0"
  virtual std::uint64_t guid() const = 0;         // host byte order
  // What can be told of its port while it is not opened.
  virtual int query(PortFacts* /*out*/) { return EOPNOTSUPP; }
  // Null and *error (errno) when it cannot work (no socket, no memory). `sink` outlives the
  // context.
  virtual std::unique_ptr<Context> open(EventSink& sink, int* error) = 0;
};

}  // namespace ferry::device
