#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// The boundary between verbs/ and an RNIC: what any RNIC has, and all that a commodity RNIC need
// offer. verbs/ owns every struct that the application sees, and talks to an RNIC only through
// these classes; movable.h has what an RNIC must offer besides so that its programs can move. Our
// own RNIC (rnic/) and the recording fake of the tests (device/fake.h) implement both.
//
// The vocabulary is that of libibverbs, so that a commodity RNIC needs no translation; structs that
// hold device objects stand in place of ibv_qp_init_attr and the like, which hold pointers to
// application structs. Functions return 0 or an errno value, unless it is said otherwise. Any
// thread may call any function of a context at any time; only the destruction of an object must not
// race with its use (as for libibverbs).
namespace ferry::device {

// IBV_ACCESS_FLUSH_GLOBAL and IBV_ACCESS_FLUSH_PERSISTENT of later versions of verbs.h, and the
// bits by which a device with FLUSH GLOBAL and ATOMIC WRITE says so in device_cap_flags_ex (kernel
// ABI).
inline constexpr std::uint32_t kFlushGlobal = 1u << 8;
inline constexpr std::uint32_t kFlushPersistent = 1u << 9;
inline constexpr std::uint64_t kDeviceFlushGlobal = 1ull << 38;
inline constexpr std::uint64_t kDeviceAtomicWrite = 1ull << 40;

// A Context makes device objects, and takes them back by Context::destroy().
class Object {
 public:
  virtual ~Object() = default;
  void* cookie = nullptr;  // verbs/ keeps the application's struct here, and finds it in events
};

class Pd : public Object {};

// An XRC domain (clause 10.2.9): its target QPs take receive WQEs from its XRC SRQs only.
class Xrcd : public Object {};

// The file that names a domain (ibv_open_xrcd). Only a device that shares_xrcds() looks at it.
struct XrcdInit {
  int file = -1;  // a descriptor; -1: the domain has no file, and nobody else opens it
  int flags = 0;  // O_CREAT, O_EXCL
};

class Cq;

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

// A completion channel of a device that has such: the kernel makes its descriptor readable, and no
// thread need pass its events on.
class Channel : public Object {
 public:
  virtual int descriptor() const = 0;
  // Takes the oldest event, and gives the CQ that raised it; blocks, or gives EAGAIN, as the
  // application set the descriptor. 0 or errno. Cq::acknowledge() must follow.
  virtual int take(Cq** out) = 0;
};

struct CqInit {
  int cqe = 0;              // wanted
  bool timestamps = false;  // poll_one() tells the times of completions
  bool wallclock = false;   // also CompletionTimes::wallclock, which not every device has
  bool ignore_overrun = false;
  Channel* channel = nullptr;  // null: the device tells the EventSink
  int vector = 0;              // below Context::completion_vectors()
};

// What an extended CQ tells of a completion besides ibv_wc.
struct CompletionTimes {
  std::uint64_t clock = 0;      // ticks of Context::clock() when the completion was added
  std::uint64_t wallclock = 0;  // nanoseconds since the epoch, if CqInit asked for it
};

class Cq : public Object {
 public:
  // Takes up to `count` completions, oldest first, and returns their number. Negative errno:
  // nothing is left, and the CQ has overflowed. Data path: runs the engine when the CQ is empty.
  virtual int poll(int count, ibv_wc* out) = 0;
  // As poll(1, …); *times gets the times if the CQ was made with `timestamps`, else zeros.
  virtual int poll_one(ibv_wc* out, CompletionTimes* times) {
    *times = {};
    return poll(1, out);
  }
  // As poll_one(), but takes only a completion that waits already (ibv_next_poll), and does not run
  // the engine: the engine might add a completion and raise its event, this call would take the
  // completion, and the event would wake the program for nothing.
  virtual int take_one(ibv_wc* out, CompletionTimes* times) { return poll_one(out, times); }
  // The next completion (with `solicited_only`: the next solicited or failed one) raises
  // EventSink::completion once.
  virtual int arm(bool solicited_only) = 0;
  // EINVAL: `cqe` is out of range, or more completions wait.
  virtual int resize(int cqe) = 0;
  virtual int capacity() const = 0;  // ≥ what was asked for
  // Moderation of events (ibv_modify_cq): the event is raised for `count` completions, or `period`
  // microseconds after the first of them. With a count of at most 1 or a period of 0, each
  // completion raises it.
  virtual int moderate(std::uint16_t /*count*/, std::uint16_t /*period*/) { return EOPNOTSUPP; }
  // The caller, who took an event of this CQ by Channel::take(), has noted the event. Until then
  // Context::destroy() of the CQ waits.
  virtual void acknowledge() {}
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
  // `mask`: IBV_SRQ_MAX_WR, IBV_SRQ_LIMIT. The limit event is raised once, when fewer WQEs than the
  // limit are left (clause 10.2.9.3).
  virtual int modify(const ibv_srq_attr& attributes, int mask) = 0;
  virtual int query(ibv_srq_attr* attributes) const = 0;
  virtual std::uint32_t number() const = 0;  // the virtual SRQN of an XRC SRQ; 0 otherwise
};

struct QpInit {
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;    // with an SRQ, cap.max_recv_* mean nothing
  Xrcd* xrcd = nullptr;  // of IBV_QPT_XRC_RECV only; such a QP has neither PD nor CQs nor SRQ
  ibv_qp_cap cap{};      // in: wanted, out: granted (≥ wanted)
  ibv_qp_type type = IBV_QPT_RC;
  bool sq_sig_all = false;
  // UD: the QP does not receive what it sends to a group (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB).
  bool block_multicast_loopback = false;
  // The ibv_qp_create_send_ops_flags of requests that Qp::post_all() will get; 0: it gets none.
  std::uint64_t send_operations = 0;
};

// What Qp::bind_mw() binds a window of type 1 to.
struct MwBind {
  std::uint64_t wr_id = 0;
  unsigned send_flags = 0;  // ibv_send_flags
  const Mr* mr = nullptr;   // may be null when `length` is 0
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  unsigned access = 0;  // ibv_access_flags
  // The bind is a marker: nobody uses the window, and the device may leave the window its rkey, if the device can then
  // carry the bind out again.
  bool is_marker = false;
};

// Requests come in libibverbs' own lists, as the application made them. They name everything by
// numbers: memory by lkey and rkey, an address handle by ibv_ah.handle, a window by ibv_mw.handle,
// the MR that a window is bound to by ibv_mr.lkey. A device reads nothing else of ibv_ah and ibv_mr,
// and of ibv_mw only rkey besides, so that a layer between the application and a device can pass on
// lists of its own.
class Qp : public Object {
 public:
  virtual std::uint32_t qpn() const = 0;  // virtual: what the application sees, for life
  virtual ibv_qp_state state() const = 0;
  // Data path. On error *bad is the first request that was not posted; those before it were.
  virtual int post_send(ibv_send_wr* list, ibv_send_wr** bad) = 0;
  // Posts all of the list, or on error none of it (ibv_wr_complete()).
  virtual int post_all(ibv_send_wr* list) = 0;
  virtual int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) = 0;
  // Checks every transition and attribute as clause 10.3.1 and ibv_modify_qp(3) say. EINVAL: one is
  // illegal, and the QP is unchanged.
  virtual int modify(const ibv_qp_attr& attributes, int mask) = 0;
  // Fills cap, the state, and every attribute that was set.
  virtual int query(ibv_qp_attr* attributes) const = 0;
  // ibv_modify_qp_rate_limit, in the state RTS; rate 0: no limit. The typical packet size is a
  // hint. EINVAL: another state, a rate beyond packet_pacing_caps, a burst or packet size without a
  // rate.
  virtual int limit_rate(const ibv_qp_rate_limit_attr& /*attributes*/) { return EOPNOTSUPP; }
  // UD only. EINVAL: not a multicast GID, or (detach) not attached; ENOMEM: too many groups, or too
  // many QPs in the group.
  virtual int attach_mcast(const ibv_gid& /*gid*/, std::uint16_t /*lid*/) { return EOPNOTSUPP; }
  virtual int detach_mcast(const ibv_gid& /*gid*/, std::uint16_t /*lid*/) { return EOPNOTSUPP; }
  // Posts the bind of a window of type 1 to the send queue (ibv_bind_mw). *rkey gets the window's
  // new rkey, which is valid once the bind has been carried out.
  virtual int bind_mw(Mw* /*window*/, const MwBind& /*bind*/, std::uint32_t* /*rkey*/) {
    return EOPNOTSUPP;
  }
};

// Takes the events of an RNIC, which calls it from any thread, possibly under its locks: a sink
// must not call back into the RNIC, and must not block.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void completion(Cq& cq) = 0;
  // IBV_EVENT_QP_* with `object` a Qp, IBV_EVENT_CQ_ERR with a Cq, IBV_EVENT_SRQ_* with a Srq, port
  // and device events with null.
  virtual void asynchronous(ibv_event_type type, Object* object) = 0;
};

// An asynchronous event: `object` and `type` as EventSink::asynchronous() has them.
struct AsynchronousEvent {
  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;
  Object* object = nullptr;
  int port = 1;  // of events without an object
};

// What an RNIC has counted since it was opened. The names are those of the files that the kernel
// shows in counters/ (clause 16.1.3.5; port_xmit_data and port_rcv_data in words of 4 bytes) and
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
  // The GIDs of all ports, without empty entries. By default it asks for each by query_gid().
  virtual std::vector<ibv_gid_entry> gids();
  virtual int query_pkey(std::uint8_t port_number, int index,
                         std::uint16_t* out) = 0;  // host order

  virtual int alloc_pd(Pd** out) = 0;
  virtual int reg_mr(const MrInit& init, Mr** out) = 0;
  virtual int create_cq(const CqInit& init, Cq** out) = 0;
  virtual int create_qp(QpInit* init, Qp** out) = 0;
  // EOPNOTSUPP from a function below: the device lacks what the function makes.

  // Makes an MR without memory (ibv_alloc_null_mr): reads from it give 0, writes to it are dropped.
  // It has no rkey.
  virtual int alloc_null_mr(Pd* /*pd*/, Mr** /*out*/) { return EOPNOTSUPP; }
  // `flags`: those of ibv_rereg_mr; they tell which fields of `init` count. On failure the MR is as before; but if the
  // device checks_requests(), the MR must not be used any more.
  virtual int rereg_mr(Mr* /*mr*/, int /*flags*/, const MrInit& /*init*/) { return EOPNOTSUPP; }
  virtual int alloc_mw(Pd* /*pd*/, ibv_mw_type /*type*/, Mw** /*out*/) { return EOPNOTSUPP; }
  virtual int create_ah(Pd* /*pd*/, const ibv_ah_attr& /*attributes*/, Ah** /*out*/) {
    return EOPNOTSUPP;
  }
  virtual int create_srq(SrqInit* /*init*/, Srq** /*out*/) { return EOPNOTSUPP; }
  virtual int open_xrcd(const XrcdInit& /*init*/, Xrcd** /*out*/) { return EOPNOTSUPP; }
  // Whether all contexts and processes that open the same file have the same domain. Else a domain is one context's.
  virtual bool shares_xrcds() const { return false; }
  // Opens an XRC target QP that another context or process has made in a domain that this context shares
  // (ibv_open_qp). EINVAL: the domain has no such QP.
  virtual int open_qp(Xrcd* /*xrcd*/, std::uint32_t /*qpn*/, Qp** /*out*/) { return EINVAL; }

  // How many completion vectors CqInit can name.
  virtual int completion_vectors() const { return 1; }
  // EOPNOTSUPP: the device has no channels, and tells the EventSink of completions.
  virtual int create_channel(Channel** /*out*/) { return EOPNOTSUPP; }
  // The descriptor that becomes readable when take_asynchronous() has an event; -1: the device
  // tells the EventSink of its events.
  virtual int asynchronous_descriptor() const { return -1; }
  // Takes the oldest event; blocks, or gives EAGAIN, as the application set the descriptor. 0 or
  // errno. acknowledge() must follow: until then destroy() of the event's object waits.
  virtual int take_asynchronous(AsynchronousEvent* /*out*/) { return EOPNOTSUPP; }
  virtual void acknowledge(const AsynchronousEvent& /*event*/) {}
  // The descriptor by which the application's process talks to the device; -1: there is none.
  virtual int command_descriptor() const { return -1; }
  // The device itself refuses the access flags and address vectors that it does not take: callers
  // pass on what the application gave.
  virtual bool checks_requests() const { return false; }

  // How many threads that make objects at the same time make them sooner than one thread does.
  virtual unsigned useful_threads() const { return 1; }

  // A free-running clock in nanoseconds, which completion timestamps and ibv_query_rt_values_ex
  // tell; 0: the device has none.
  virtual std::uint64_t clock() const { return 0; }
  // EBUSY: other objects use the object, or the QP is attached to a multicast group; the object lives on.
  virtual int destroy(Object* object) = 0;

  // Called before fork(), and afterwards in parent and child. Meanwhile no stop of the context begins or ends. These do
  // not wait for a device, and neither does survives_fork().
  virtual void before_fork() {}
  virtual void after_fork() {}
  // Asked in a child after fork(): it can use the context as its parent can, and abandon() is not called.
  virtual bool survives_fork() const { return false; }
  // Called in a child after fork(): the RNIC belongs to the parent. Every later call fails, with
  // ENODEV if it can fail, and none hangs. The context is not destroyed any more: threads that do not
  // exist in the child may hold its locks.
  virtual void abandon() = 0;
  // Called when the process ends without closing the context: sends what the RNIC owes its peers at
  // once.
  virtual void leave() {}

  // Appends the counters of this RNIC, without those that it does not keep.
  virtual void counters(std::vector<Counter>* /*out*/) {}
};

// What Context::query_port() and query_gid() tell of port 1.
struct PortFacts {
  ibv_port_attr attributes{};
  std::vector<ibv_gid_entry> gids;
};

// A device that can be opened.
class Rnic {
 public:
  virtual ~Rnic() = default;
  virtual const std::string& name() const = 0;    // "ferry0"
  virtual const std::string& netdev() const = 0;  // "rdma0"
  virtual std::uint64_t guid() const = 0;         // host byte order
  // The kernel's number of the device; -1: it is none of the kernel's.
  virtual int index() const { return -1; }
  // Tells of the port without opening the device.
  virtual int query(PortFacts* /*out*/) { return EOPNOTSUPP; }
  // The addresses by which rdma_cm finds the device, as GIDs: the first IPv4 address of its network
  // interface and the first IPv6 address that is not link-local, in this order, whether or not they
  // are in its GID table.
  virtual std::vector<ibv_gid> addresses() const { return {}; }
  // Null and *error (errno): it cannot be opened (no socket, no memory). `sink` outlives the
  // context.
  virtual std::unique_ptr<Context> open(EventSink& sink, int* error) = 0;
  // The program is on another host now: from now on open() opens the device that has this name
  // there, which name_here() gives. name() stays.
  virtual void follow(const std::string& /*name*/) {}
  virtual std::string name_here() const { return name(); }
};

}  // namespace ferry::device
