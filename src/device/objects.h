#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// The boundary: what any RNIC has, and all that a commodity RNIC need offer. verbs/ owns every
// struct that the application sees and talks to an RNIC only through these classes; movable.h has
// what an RNIC must offer besides so that its programs can move. The RNIC of our own (rnic/) and
// the recording fake of the tests (device/fake.h) implement both.
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
  virtual std::uint32_t lkey() const = 0;
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

// What a window of type 1 is bound to, by a request of its own.
struct MwBind {
  std::uint64_t wr_id = 0;
  unsigned send_flags = 0;  // ibv_send_flags
  const Mr* mr = nullptr;   // may be missing where the length is 0
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  unsigned access = 0;  // ibv_access_flags
};

// Requests come in libibverbs' own lists, as the application made them. They name everything by
// numbers: memory by lkey and rkey, an address handle by ibv_ah.handle, a window by ibv_mw.handle,
// the MR that it is bound to by ibv_mr.lkey. Of those three structs a device reads nothing else, so
// that whoever stands between the application and a device can hand on a list of its own.
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
  virtual int bind_mw(Mw* /*window*/, const MwBind& /*bind*/, std::uint32_t* /*rkey*/) {
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
};

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

  // A child after fork(): the RNIC belongs to the parent; every call fails with ENODEV-like errors,
  // nothing hangs.
  virtual void abandon() = 0;
  // The process ends without closing it: what the RNIC owes its peers at once is sent.
  virtual void leave() {}

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
  // The addresses that rdma_cm finds it by, as GIDs: of its network interface the first IPv4 and
  // the first IPv6 address but link-local ones, in this order, whether or not they are in its GID
  // table.
  virtual std::vector<ibv_gid> addresses() const { return {}; }
  // Null and *error (errno) when it cannot work (no socket, no memory). `sink` outlives the
  // context.
  virtual std::unique_ptr<Context> open(EventSink& sink, int* error) = 0;
};

}  // namespace ferry::device
