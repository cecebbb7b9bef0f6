#include "verbs/calls/request_builder.h"
#include "verbs/entry.h"
#include "verbs/kernel/rdma_cm.h"
#include "verbs/objects.h"
#include "verbs/stock.h"

namespace ferry::verbs {

Qp::Qp() : ex{} {}
Qp::~Qp() = default;

// --- data path ----------------------------------------------------------------------------------

int post_send(ibv_qp* qp, ibv_send_wr* list, ibv_send_wr** bad) {
  return to_qp(qp)->device->post_send(list, bad);
}

int post_receive(ibv_qp* qp, ibv_recv_wr* list, ibv_recv_wr** bad) {
  return to_qp(qp)->device->post_recv(list, bad);
}

// --- creation -----------------------------------------------------------------------------------

void fill_qp(Context& context, Qp& qp, const std::shared_ptr<QpCore>& core, ibv_pd* pd,
             Xrcd* xrcd) {
  qp.qp.context = context.application();
  qp.qp.qp_context = qp.init.qp_context;
  qp.qp.pd = pd;
  qp.qp.send_cq = qp.init.send_cq;
  qp.qp.recv_cq = qp.init.recv_cq;
  qp.qp.srq = qp.init.srq;
  qp.qp.qp_num = core->device->qpn();
  qp.qp.state = core->device->state();
  qp.qp.qp_type = qp.init.qp_type;
  pthread_mutex_init(&qp.qp.mutex, nullptr);
  pthread_cond_init(&qp.qp.cond, nullptr);
  qp.device = core->device;
  qp.core = core;
  qp.xrcd = xrcd;
  if (pd) ++to_pd(pd)->users;
  if (xrcd) ++xrcd->users;
}

Qp* wrap_qp(Context& context, device::Qp* device, ibv_pd* pd, Xrcd* xrcd,
            const ibv_qp_init_attr& init) {
  return adopt<Qp>(context, device, [&](Qp& qp) {
    auto core = std::make_shared<QpCore>();
    core->device = device;
    core->shells.push_back(&qp);
    if (xrcd) {
      std::lock_guard lock(context.mutex);
      context.shareable.push_back(core);
    }
    qp.init = init;
    fill_qp(context, qp, core, pd, xrcd);
    device->cookie = core.get();
  });
}

namespace {

// Checks that the application gives the objects that a QP of its type is made of (clause 10.2.4; for
// XRC annex A14), and that all are of this context. 0 or errno.
int check(Context& context, ibv_pd* pd, const ibv_xrcd* xrcd, const ibv_qp_init_attr& init) {
  bool has_pd = true, sends = true, receives = true;
  switch (static_cast<unsigned>(init.qp_type)) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD: break;
    case IBV_QPT_XRC_SEND: receives = false; break;
    case IBV_QPT_XRC_RECV: has_pd = sends = receives = false; break;
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_DRIVER: return EOPNOTSUPP;
    default: return EINVAL;
  }
  if (has_pd && !pd) return EINVAL;
  if (!has_pd && !xrcd) return EINVAL;
  if (sends && !init.send_cq) return EINVAL;
  if (receives ? !init.recv_cq : init.srq != nullptr) return EINVAL;
  const auto of = [&](const auto* object) {
    return object ? object->context : context.application();
  };
  if (common_context({context.application(), of(pd), of(xrcd), of(init.send_cq), of(init.recv_cq),
                      of(init.srq)}) != &context) {
    return EINVAL;
  }
  return init.srq && to_srq(init.srq)->xrcd ? EINVAL : 0;  // XRC SRQs are named by each request
}

// Ends a struct of a QP; the device's QP ends with the last of its structs.
int destroy_qp(Context& context, Qp* qp) {
  if (int error = usable(context)) return error;
  const auto core = qp->core;
  bool last = false;
  {
    std::lock_guard lock(core->mutex);
    last = core->shells.size() == 1;
    std::erase(core->shells, qp);
  }
  if (last) {
    if (rdmacm::Service* cm = rdma_cm_if_any())
      cm->qp_destroyed(context.rnic->name(), qp->qp.qp_num);
    if (int error = context.device->destroy(core->device)) {
      std::lock_guard lock(core->mutex);
      core->shells.push_back(qp);
      return error;
    }
    std::lock_guard lock(context.mutex);
    std::erase(context.shareable, core);
  }
  context.async_events.forget(&qp->qp);
  wait_for_acknowledgements(qp->qp.mutex, qp->qp.cond, qp->qp.events_completed,
                            qp->asynchronous_reported);
  if (qp->qp.pd) --to_pd(qp->qp.pd)->users;
  if (qp->xrcd) --qp->xrcd->users;
  pthread_cond_destroy(&qp->qp.cond);
  pthread_mutex_destroy(&qp->qp.mutex);
  delete qp;
  return 0;
}

}  // namespace

int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attributes) {
  return guarded([&] {
    if (!attributes) return EINVAL;
    if (int error = usable(*context_of(qp->context))) return error;
    return to_qp(qp)->device->limit_rate(*attributes);
  });
}

int make_qp(Context& context, ibv_pd* pd, ibv_xrcd* xrcd, ibv_qp_init_attr* init,
            std::uint32_t create_flags, std::uint64_t send_operations, Qp** out) {
  if (int error = usable(context)) return error;
  if (create_flags & ~static_cast<std::uint32_t>(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)) {
    return EOPNOTSUPP;
  }
  if (int error = check(context, pd, xrcd, *init)) return error;
  // Attributes that the type does not have are neither looked at nor shown.
  const bool target = init->qp_type == IBV_QPT_XRC_RECV;
  if (target) {
    pd = nullptr;
    init->send_cq = nullptr;
    init->srq = nullptr;
    init->cap = {};
  } else {
    xrcd = nullptr;
  }
  if (target || init->qp_type == IBV_QPT_XRC_SEND) {
    init->recv_cq = nullptr;
    init->cap.max_recv_wr = init->cap.max_recv_sge = 0;
  }
  device::QpInit wanted;
  wanted.block_multicast_loopback = create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  if (pd) wanted.pd = to_pd(pd)->device;
  if (init->send_cq) wanted.send_cq = to_cq(init->send_cq)->device;
  if (init->recv_cq) wanted.recv_cq = to_cq(init->recv_cq)->device;
  if (init->srq) wanted.srq = to_srq(init->srq)->device;
  if (xrcd) wanted.xrcd = to_xrcd(xrcd)->domain->device;
  wanted.cap = init->cap;
  wanted.type = init->qp_type;
  wanted.sq_sig_all = init->sq_sig_all != 0;
  wanted.send_operations = send_operations;
  device::Qp* device = nullptr;
  if (int error = context.device->create_qp(&wanted, &device)) return error;
  init->cap = wanted.cap;
  *out = wrap_qp(context, device, pd, xrcd ? to_xrcd(xrcd) : nullptr, *init);
  return 0;
}

}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  if (!pd || !attributes) return pointer_or_errno<ibv_qp>(EINVAL, nullptr);
  Context* ours = context_of(pd->context);
  if (!ours) return FERRY_STOCK(ibv_create_qp, "IBVERBS_1.1")(pd, attributes);
  Qp* qp = nullptr;
  const int error = guarded([&] {
    ibv_qp_init_attr init = *attributes;
    if (int e = make_qp(*ours, pd, nullptr, &init, 0, 0, &qp)) return e;
    attributes->cap = init.cap;
    return 0;
  });
  return pointer_or_errno(error, error ? nullptr : &qp->qp);
}

FERRY_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  if (!qp || !attributes) return EINVAL;
  Context* ours = context_of(qp->context);
  if (!ours) return FERRY_STOCK(ibv_modify_qp, "IBVERBS_1.1")(qp, attributes, mask);
  return guarded([&] {
    if (int e = usable(*ours)) return e;
    if (int e = to_qp(qp)->device->modify(*attributes, mask)) return e;
    if (mask & IBV_QP_STATE) qp->state = attributes->qp_state;
    return 0;
  });
}

FERRY_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask,
                              ibv_qp_init_attr* init) {
  if (!qp || !attributes || !init) return EINVAL;
  Context* ours = context_of(qp->context);
  if (!ours) return FERRY_STOCK(ibv_query_qp, "IBVERBS_1.1")(qp, attributes, mask, init);
  return guarded([&] {
    if (int e = usable(*ours)) return e;
    if (int e = to_qp(qp)->device->query(attributes)) return e;
    *init = to_qp(qp)->init;
    qp->state = attributes->qp_state;
    return 0;
  });
}

FERRY_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  if (!qp) return EINVAL;
  Context* ours = context_of(qp->context);
  if (!ours) return FERRY_STOCK(ibv_destroy_qp, "IBVERBS_1.1")(qp);
  return guarded([&] { return destroy_qp(*ours, to_qp(qp)); });
}

FERRY_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  if (!qp) return nullptr;
  if (!context_of(qp->context)) return FERRY_STOCK(ibv_qp_to_qp_ex, "IBVERBS_1.6")(qp);
  return to_qp(qp)->builder ? &to_qp(qp)->ex : nullptr;
}

FERRY_EXPORT int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode op, uint32_t flags) {
  if (!qp) return 0;
  if (!context_of(qp->context)) {
    return FERRY_STOCK(ibv_query_qp_data_in_order, "IBVERBS_1.14")(qp, op, flags);
  }
  return 0;  // packets are placed in order and their last byte last, but not byte by byte
}

// Enhanced connection establishment: there is nothing that two of our RNICs would have to agree on.
// EOPNOTSUPP is libibverbs' own answer for a device without it.
FERRY_EXPORT int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  if (!qp || !ece) return EINVAL;
  Context* ours = context_of(qp->context);
  if (!ours) return FERRY_STOCK(ibv_query_ece, "IBVERBS_1.10")(qp, ece);
  return EOPNOTSUPP;
}

FERRY_EXPORT int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  if (!qp || !ece) return EINVAL;
  Context* ours = context_of(qp->context);
  if (!ours) return FERRY_STOCK(ibv_set_ece, "IBVERBS_1.10")(qp, ece);
  return EOPNOTSUPP;
}

FERRY_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (!qp || !gid) return EINVAL;
  Context* ours = context_of(qp->context);
  if (!ours) return FERRY_STOCK(ibv_attach_mcast, "IBVERBS_1.1")(qp, gid, lid);
  return guarded([&] {
    if (int e = usable(*ours)) return e;
    if (qp->qp_type != IBV_QPT_UD) return EINVAL;
    return to_qp(qp)->device->attach_mcast(*gid, lid);
  });
}

FERRY_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  if (!qp || !gid) return EINVAL;
  Context* ours = context_of(qp->context);
  if (!ours) return FERRY_STOCK(ibv_detach_mcast, "IBVERBS_1.1")(qp, gid, lid);
  return guarded([&] {
    if (int e = usable(*ours)) return e;
    if (qp->qp_type != IBV_QPT_UD) return EINVAL;
    return to_qp(qp)->device->detach_mcast(*gid, lid);
  });
}
