#include "hca/context.h"

#include <endian.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>

#include "hca/completion_queue.h"
#include "hca/queue_pair.h"

namespace ferry::hca {
namespace {

// Beyond that, the kernel's locks and the hardware's command queue are what all wait for.
constexpr unsigned kMostThreads = 4;

}  // namespace

Context::~Context() {
  ibv_close_device(real_);
}

int Context::query_device(ibv_device_attr_ex* out) {
  return error_of(ibv_query_device_ex(real_, nullptr, out));
}

int Context::query_port(std::uint8_t port_number, ibv_port_attr* out) {
  return error_of(ibv_query_port(real_, port_number, out));
}

int Context::query_gid(std::uint8_t port_number, unsigned index, ibv_gid_entry* out) {
  return error_of(ibv_query_gid_ex(real_, port_number, index, out, 0));
}

std::vector<ibv_gid_entry> Context::gids() {
  ibv_device_attr_ex attributes{};
  if (query_device(&attributes) != 0) return {};
  std::size_t room = 0;
  for (std::uint32_t number = 1; number <= attributes.phys_port_cnt_ex; ++number) {
    ibv_port_attr port{};
    if (query_port(static_cast<std::uint8_t>(number), &port) != 0) continue;
    room += static_cast<std::size_t>(port.gid_tbl_len);
  }
  const StockErrno stock_errno;
  std::vector<ibv_gid_entry> all(room);
  const ssize_t count = ibv_query_gid_table(real_, all.data(), all.size(), 0);
  all.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return all;
}

int Context::query_pkey(std::uint8_t port_number, int index, std::uint16_t* out) {
  __be16 key = 0;
  const int error = error_of(ibv_query_pkey(real_, port_number, index, &key));
  *out = be16toh(key);
  return error;
}

template <typename T, typename DeviceObject, typename Create>
int Context::make(std::unique_ptr<T> object, DeviceObject** out, Create create) {
  T& made = *object;
  {
    std::lock_guard lock(mutex_);
    objects_.emplace(&made, std::move(object));
  }
  const StockErrno stock_errno;
  int error = 0;
  try {
    error = create(made);
  } catch (...) {
    forget(&made);
    throw;
  }
  if (error != 0) {
    forget(&made);
  } else {
    *out = &made;
  }
  return error;
}

void Context::forget(device::Object* object) {
  std::lock_guard lock(mutex_);
  objects_.erase(object);
}

int Context::alloc_pd(device::Pd** out) {
  return make(std::make_unique<Pd>(), out, [&](Pd& pd) { return pd.create(real_); });
}

int Context::reg_mr(const device::MrInit& init, device::Mr** out) {
  return make(std::make_unique<Mr>(names_), out, [&](Mr& mr) { return mr.create(init); });
}

int Context::create_cq(const device::CqInit& init, device::Cq** out) {
  return make(std::make_unique<Cq>(), out, [&](Cq& cq) { return cq.create(real_, init); });
}

int Context::create_qp(device::QpInit* init, device::Qp** out) {
  auto qp = init->type == IBV_QPT_UD
                ? std::unique_ptr<Qp>(std::make_unique<DatagramQp>(names_, begins_anew_))
                : std::make_unique<Qp>(names_, begins_anew_);
  return make(std::move(qp), out, [&](Qp& made) { return made.create(init); });
}

int Context::alloc_null_mr(device::Pd* pd, device::Mr** out) {
  return make(std::make_unique<Mr>(names_), out, [&](Mr& mr) { return mr.create_null(pd); });
}

int Context::rereg_mr(device::Mr* mr, int flags, const device::MrInit& init) {
  return static_cast<Mr*>(mr)->rereg(flags, init);
}

int Context::alloc_mw(device::Pd* pd, ibv_mw_type type, device::Mw** out) {
  return make(std::make_unique<Mw>(names_), out, [&](Mw& mw) { return mw.create(pd, type); });
}

int Context::create_ah(device::Pd* pd, const ibv_ah_attr& attributes, device::Ah** out) {
  return make(std::make_unique<Ah>(names_), out, [&](Ah& ah) { return ah.create(pd, attributes); });
}

int Context::create_srq(device::SrqInit* init, device::Srq** out) {
  return make(std::make_unique<Srq>(), out, [&](Srq& srq) { return srq.create(init); });
}

int Context::open_xrcd(const device::XrcdInit& init, device::Xrcd** out) {
  return make(std::make_unique<Xrcd>(), out, [&](Xrcd& xrcd) { return xrcd.open(real_, init); });
}

int Context::open_qp(device::Xrcd* xrcd, std::uint32_t qpn, device::Qp** out) {
  return make(std::make_unique<Qp>(names_, begins_anew_), out,
              [&](Qp& qp) { return qp.open(real_, *xrcd, qpn); });
}

int Context::create_channel(device::Channel** out) {
  return make(std::make_unique<Channel>(), out,
              [&](Channel& channel) { return channel.create(real_); });
}

int Context::take_asynchronous(device::AsynchronousEvent* out) {
  ibv_async_event event{};
  if (const int error = error_of(ibv_get_async_event(real_, &event))) return error;
  *out = {event.event_type, nullptr, 1};
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR: out->object = static_cast<Cq*>(event.element.cq->cq_context); break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      out->object = static_cast<Srq*>(event.element.srq->srq_context);
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      out->object = static_cast<Qp*>(event.element.qp->qp_context);
      break;
    default: out->port = event.element.port_num;
  }
  return 0;
}

void Context::acknowledge(const device::AsynchronousEvent& event) {
  ibv_async_event stock{};
  stock.event_type = event.type;
  if (auto* cq = dynamic_cast<Cq*>(event.object)) {
    stock.element.cq = cq->real;
  } else if (auto* srq = dynamic_cast<Srq*>(event.object)) {
    stock.element.srq = srq->real;
  } else if (auto* qp = dynamic_cast<Qp*>(event.object)) {
    stock.element.qp = qp->real;
  } else {
    return;  // the stock library counts events of objects alone
  }
  ibv_ack_async_event(&stock);
}

unsigned Context::useful_threads() const {
  cpu_set_t processors;
  // A machine with more processors than the set has room for has enough of them.
  if (::sched_getaffinity(0, sizeof processors, &processors) != 0) return kMostThreads;
  return std::clamp(static_cast<unsigned>(CPU_COUNT(&processors)), 1U, kMostThreads);
}

std::uint64_t Context::clock() const {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  if (ibv_query_rt_values_ex(real_, &values) != 0) return 0;
  return static_cast<std::uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
}

int Context::destroy(device::Object* object) {
  auto* ended = dynamic_cast<Ended*>(object);
  if (ended == nullptr) return EINVAL;
  const StockErrno stock_errno;
  const int error = ended->end();
  if (error == 0) forget(object);
  return error;
}

}  // namespace ferry::hca
