#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/movable.h"
#include "verbs/event_queue.h"

// The structs that the application sees, each the first member of one of ours, with the device
// object behind it.
namespace ferry::verbs {

// ibv_device as providers know it: mlx5dv_is_supported() and its like look at the fields of
// verbs_device that follow ibv_device.
struct Device {
  ibv_device device;
  const void* ops;
  std::byte provider_fields[256];
  unsigned number;     // of its node, uverbsN, if it is one of Ferry's own
  ibv_device* kernel;  // the stock library's device; null: it is one of Ferry's own
  // The RNIC that was discovered last. Used with the list's mutex held.
  std::shared_ptr<device::MovableRnic>* rnic;
};

struct Context;
struct Mr;
struct Pd;
struct Qp;
struct QpCore;
struct XrcDomain;

struct ContextShell {
  verbs_context verbs;
  Context* self;
};

struct Context : device::EventSink, device::MoveSink {
  Context();
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ibv_context* application() { return &shell.verbs.context; }
  void completion(device::Cq& cq) override;
  void asynchronous(ibv_event_type type, device::Object* object) override;
  void seeks() override;
  void has_letters() override;
  void cm_news(device::CmNews news, std::uint32_t qpn) override;

  ContextShell shell{};
  std::shared_ptr<device::MovableRnic> rnic;
  EventQueue async_events;  // closed for a device that has a descriptor for its events
  // The memory that code of the stock library finds by verbs_context.priv.
  std::unique_ptr<std::byte[]> private_page;
  std::unique_ptr<device::MovableContext> device;  // ends before async_events
  std::atomic<bool> abandoned{false};              // the RNIC belongs to this process's parent
  std::atomic<bool> dumped{false};                 // by ibv_dump_context: Stopped for good
  // Descriptors that ibv_import_device() was given: one reference each. The process's mutex guards these two.
  std::vector<int> imported;
  bool is_closing = false;  // nobody imports it any more
  // Guards the reference counts of channels, PDs, MRs and XRC domains, and the members from here to
  // restore_mutex. Taken before the device's locks.
  std::mutex mutex;
  std::uint32_t next_handle = 1;
  std::unordered_map<std::uint32_t, Pd*> pds;  // by ibv_pd.handle
  std::unordered_map<std::uint32_t, Mr*> mrs;  // by ibv_mr.handle
  std::vector<std::unique_ptr<XrcDomain>> xrc_domains;
  std::vector<std::shared_ptr<QpCore>> shareable;  // XRC target QPs
  std::mutex restore_mutex;
  // What ibv_restore_object() has made so far, by handle of the dump. Used with restore_mutex held.
  std::map<std::uint32_t, void*> restored;
};

struct Td {
  ibv_td td{};
  std::atomic<std::uint32_t> users{0};  // parent domains
};

// A PD or a parent domain, which is a second name of its PD that has users of its own.
struct Pd {
  ibv_pd pd{};
  device::Pd* device = nullptr;         // null once deallocated; of a parent domain: its PD's
  std::atomic<std::uint32_t> users{0};  // objects made with this struct, and its parent domains
  std::uint32_t references = 1;         // its maker's, and one of each ibv_import_pd()
  Pd* parent_of = nullptr;              // parent domains only
  Td* td = nullptr;
};

struct Mr {
  ibv_mr mr{};
  device::Mr* device = nullptr;  // null once deregistered
  std::uint32_t references = 1;  // its maker's and one of each ibv_import_mr()
};

struct Mw {
  ibv_mw mw{};
  device::Mw* device = nullptr;
};

struct Channel {
  ibv_comp_channel channel{};
  device::Channel* device = nullptr;  // null: a channel of ours, which has its events in `events`
  EventQueue events;
};

struct Cq {
  Cq() : ex{} {}
  union {
    ibv_cq cq;
    ibv_cq_ex ex;  // begins like ibv_cq
  };
  device::Cq* device = nullptr;
  Pd* parent_domain = nullptr;
  std::atomic<std::uint32_t> completions_reported{0}, asynchronous_reported{0};
  bool single_threaded = false, timestamps = false;
  std::mutex poll_mutex;  // from ibv_start_poll to ibv_end_poll
  ibv_wc current{};
  device::CompletionTimes times;
};

// What ibv_open_xrcd() opens, once or, by the same file, several times.
struct XrcDomain {
  device::Xrcd* device = nullptr;
  int descriptor = -1;     // a duplicate of the file's, which names the domain; -1: it has no name
  bool is_shared = false;  // contexts and processes that open the file have the same domain
  std::uint32_t references = 0;
  ~XrcDomain();
};

struct Xrcd {
  ibv_xrcd xrcd{};
  XrcDomain* domain = nullptr;
  std::atomic<std::uint32_t> users{0};  // SRQs and QPs made with this struct
};

struct Srq {
  ibv_srq srq{};
  device::Srq* device = nullptr;
  Xrcd* xrcd = nullptr;  // XRC only
  std::atomic<std::uint32_t> asynchronous_reported{0};
};

struct RequestBuilder;  // request_builder.h

// A QP of the device and the structs that stand for it: one; more for an XRC target QP that was
// opened again (ibv_open_qp(3)). Each struct gets every event.
struct QpCore {
  device::Qp* device = nullptr;
  std::mutex mutex;  // innermost
  std::vector<Qp*> shells;
};

struct Qp {
  Qp();
  ~Qp();
  union {
    ibv_qp qp;
    ibv_qp_ex ex;  // begins with ibv_qp
  };
  device::Qp* device = nullptr;
  std::shared_ptr<QpCore> core;
  Xrcd* xrcd = nullptr;  // XRC target QPs only
  ibv_qp_init_attr init{};
  std::atomic<std::uint32_t> asynchronous_reported{0};
  std::unique_ptr<RequestBuilder> builder;  // of QPs made for ibv_wr_*
};

struct Ah {
  ibv_ah ah{};
  device::Ah* device = nullptr;
};

// Null when `context` is null or not one of ours.
Context* context_of(ibv_context* context);

inline Pd* to_pd(ibv_pd* pd) {
  return reinterpret_cast<Pd*>(pd);
}
inline Mr* to_mr(ibv_mr* mr) {
  return reinterpret_cast<Mr*>(mr);
}
inline Channel* to_channel(ibv_comp_channel* c) {
  return reinterpret_cast<Channel*>(c);
}
inline Cq* to_cq(ibv_cq* cq) {
  return reinterpret_cast<Cq*>(cq);
}
inline Qp* to_qp(ibv_qp* qp) {
  return reinterpret_cast<Qp*>(qp);
}
inline Ah* to_ah(ibv_ah* ah) {
  return reinterpret_cast<Ah*>(ah);
}
inline Td* to_td(ibv_td* td) {
  return reinterpret_cast<Td*>(td);
}
inline Mw* to_mw(ibv_mw* mw) {
  return reinterpret_cast<Mw*>(mw);
}
inline Xrcd* to_xrcd(ibv_xrcd* xrcd) {
  return reinterpret_cast<Xrcd*>(xrcd);
}
inline Srq* to_srq(ibv_srq* srq) {
  return reinterpret_cast<Srq*>(srq);
}

// 0, or the errno value with which calls on this context fail: ENODEV in a child after fork().
int usable(const Context& context);

// Makes the struct of a new device object. When `fill` throws, or there is no memory for the struct
// (std::bad_alloc), the device object is destroyed. `fill` sets the cookie.
template <typename T, typename Fill>
T* adopt(Context& context, device::Object* device, Fill fill) {
  try {
    auto shell = std::make_unique<T>();
    fill(*shell);
    return shell.release();
  } catch (...) {
    context.device->destroy(device);
    throw;
  }
}

// These make the struct for a new device object, for the verbs calls and for ibv_restore_object().
Pd* wrap_pd(Context& context, device::Pd* device);
Mr* wrap_mr(Context& context, ibv_pd* pd, device::Mr* device, void* address, std::size_t length);
Mw* wrap_mw(Context& context, ibv_pd* pd, device::Mw* device, ibv_mw_type type);
Ah* wrap_ah(Context& context, ibv_pd* pd, device::Ah* device);
Cq* wrap_cq(Context& context, device::Cq* device, void* cq_context, ibv_comp_channel* channel);
Xrcd* wrap_xrcd(Context& context, device::Xrcd* device);
Srq* wrap_srq(Context& context, device::Srq* device, ibv_pd* pd, Xrcd* xrcd, void* srq_context);
Qp* wrap_qp(Context& context, device::Qp* device, ibv_pd* pd, Xrcd* xrcd,
            const ibv_qp_init_attr& init);
// Fills in what the struct of every QP shows; `qp.init` is set already.
void fill_qp(Context& context, Qp& qp, const std::shared_ptr<QpCore>& core, ibv_pd* pd, Xrcd* xrcd);

// The context, when all of `contexts` are the same one and it is ours; null otherwise.
Context* common_context(std::initializer_list<ibv_context*> contexts);

// Waits until the application has acknowledged the events of an object that it took
// (ibv_ack_async_event(3)).
void wait_for_acknowledgements(pthread_mutex_t& mutex, pthread_cond_t& condition,
                               const std::uint32_t& acknowledged,
                               const std::atomic<std::uint32_t>& reported);

// Fills the function pointers of the extended objects.
void set_cq_ex_functions(Cq& cq);
void set_qp_ex_functions(Qp& qp, std::uint64_t send_operations);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes);

// Creates the device object and its struct. 0 or errno; `init` gets the granted capacities.
int make_cq(Context& context, const device::CqInit& wanted, void* cq_context,
            ibv_comp_channel* channel, int vector, Cq** out);
// `pd` is null for XRC target QPs, `xrcd` for all others; `create_flags` are ibv_qp_create_flags,
// `send_operations` those of ibv_qp_init_attr_ex.send_ops_flags.
int make_qp(Context& context, ibv_pd* pd, ibv_xrcd* xrcd, ibv_qp_init_attr* init,
            std::uint32_t create_flags, std::uint64_t send_operations, Qp** out);

// Data path, for ibv_context.ops.
int poll_cq(ibv_cq* cq, int count, ibv_wc* out);
int request_notify_cq(ibv_cq* cq, int solicited_only);
int post_send(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad);
int post_receive(ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad);

int post_srq_receive(ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad);

// For ibv_context.ops and verbs_context.
int query_port(ibv_context* context, std::uint8_t number, ibv_port_attr* out, std::size_t size);
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* out, std::size_t size);
int query_rt_values(ibv_context* context, ibv_values_ex* values);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attributes);
ibv_mr* alloc_null_mr(ibv_pd* pd);
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count);
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
int dealloc_mw(ibv_mw* mw);
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes);
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attributes);
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attributes);
int close_xrcd(ibv_xrcd* xrcd);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes);
int get_srq_num(ibv_srq* srq, std::uint32_t* number);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes);

}  // namespace ferry::verbs
