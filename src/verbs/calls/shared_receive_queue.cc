#include <cstring>

#include "verbs/entry.h"
#include "verbs/objects.h"
#include "verbs/stock.h"

// Shared receive queues, plain and XRC.
namespace ferry::verbs {

// --- data path ----------------------------------------------------------------------------------

int post_srq_receive(ibv_srq* srq, ibv_recv_wr* list, ibv_recv_wr** bad) {
  return to_srq(srq)->device->post_recv(list, bad);
}

// --- creation -----------------------------------------------------------------------------------

Srq* wrap_srq(Context& context, device::Srq* device, ibv_pd* pd, Xrcd* xrcd, void* srq_context) {
  return adopt<Srq>(context, device, [&](Srq& srq) {
    srq.srq.context = context.application();
    srq.srq.srq_context = srq_context;
    srq.srq.pd = pd;
    pthread_mutex_init(&srq.srq.mutex, nullptr);
    pthread_cond_init(&srq.srq.cond, nullptr);
    srq.device = device;
    srq.xrcd = xrcd;
    ++to_pd(pd)->users;
    if (xrcd) ++xrcd->users;
    device->cookie = &srq;
  });
}

namespace {

int make_srq(Context& context, ibv_srq_init_attr_ex* attributes, Srq** out) {
  constexpr std::uint32_t kSupported =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  if (int error = usable(context)) return error;
  if (attributes->comp_mask & ~kSupported) return EOPNOTSUPP;
  if (!(attributes->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attributes->pd) return EINVAL;
  if (attributes->pd->context != context.application()) return EINVAL;
  unsigned type = IBV_SRQT_BASIC;
  if (attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) {
    std::memcpy(&type, &attributes->srq_type, sizeof type);  // the enum may hold anything
  }
  if (type == IBV_SRQT_TM) return EOPNOTSUPP;
  if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC) return EINVAL;
  device::SrqInit wanted;
  wanted.pd = to_pd(attributes->pd)->device;
  wanted.attributes = attributes->attr;
  Xrcd* xrcd = nullptr;
  if (type == IBV_SRQT_XRC) {
    constexpr std::uint32_t kXrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    if ((attributes->comp_mask & kXrc) != kXrc || !attributes->xrcd || !attributes->cq)
      return EINVAL;
    if (attributes->xrcd->context != context.application() ||
        attributes->cq->context != context.application()) {
      return EINVAL;
    }
    xrcd = to_xrcd(attributes->xrcd);
    wanted.xrcd = xrcd->domain->device;
    wanted.cq = to_cq(attributes->cq)->device;
  }
  device::Srq* device = nullptr;
  if (int error = context.device->create_srq(&wanted, &device)) return error;
  attributes->attr.max_wr = wanted.attributes.max_wr;
  attributes->attr.max_sge = wanted.attributes.max_sge;
  *out = wrap_srq(context, device, attributes->pd, xrcd, attributes->srq_context);
  return 0;
}

int destroy_srq(Context& context, Srq* srq) {
  if (int error = usable(context)) return error;
  if (int error = context.device->destroy(srq->device)) return error;
  context.async_events.forget(&srq->srq);
  wait_for_acknowledgements(srq->srq.mutex, srq->srq.cond, srq->srq.events_completed,
                            srq->asynchronous_reported);
  --to_pd(srq->srq.pd)->users;
  if (srq->xrcd) --srq->xrcd->users;
  pthread_cond_destroy(&srq->srq.cond);
  pthread_mutex_destroy(&srq->srq.mutex);
  delete srq;
  return 0;
}

}  // namespace

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes) {
  Srq* srq = nullptr;
  const int error = guarded([&] { return make_srq(*context_of(context), attributes, &srq); });
  return pointer_or_errno(error, error ? nullptr : &srq->srq);
}

int get_srq_num(ibv_srq* srq, std::uint32_t* number) {
  if (!number || !to_srq(srq)->xrcd) return EINVAL;  // a plain SRQ has none
  *number = to_srq(srq)->device->number();
  return 0;
}

}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  if (!pd || !attributes) return pointer_or_errno<ibv_srq>(EINVAL, nullptr);
  Context* ours = context_of(pd->context);
  if (!ours) return FERRY_STOCK(ibv_create_srq, "IBVERBS_1.1")(pd, attributes);
  ibv_srq_init_attr_ex wanted{};
  wanted.srq_context = attributes->srq_context;
  wanted.attr = attributes->attr;
  wanted.comp_mask = IBV_SRQ_INIT_ATTR_PD;
  wanted.pd = pd;
  Srq* srq = nullptr;
  const int error = guarded([&] { return make_srq(*ours, &wanted, &srq); });
  if (!error) attributes->attr = wanted.attr;
  return pointer_or_errno(error, error ? nullptr : &srq->srq);
}

FERRY_EXPORT int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask) {
  if (!srq || !attributes) return EINVAL;
  Context* ours = context_of(srq->context);
  if (!ours) return FERRY_STOCK(ibv_modify_srq, "IBVERBS_1.1")(srq, attributes, mask);
  return guarded([&] {
    if (int e = usable(*ours)) return e;
    if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) return EINVAL;
    return to_srq(srq)->device->modify(*attributes, mask);
  });
}

FERRY_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attributes) {
  if (!srq || !attributes) return EINVAL;
  Context* ours = context_of(srq->context);
  if (!ours) return FERRY_STOCK(ibv_query_srq, "IBVERBS_1.1")(srq, attributes);
  return guarded([&] {
    if (int e = usable(*ours)) return e;
    return to_srq(srq)->device->query(attributes);
  });
}

FERRY_EXPORT int ibv_destroy_srq(ibv_srq* srq) {
  if (!srq) return EINVAL;
  Context* ours = context_of(srq->context);
  if (!ours) return FERRY_STOCK(ibv_destroy_srq, "IBVERBS_1.1")(srq);
  return guarded([&] { return destroy_srq(*ours, to_srq(srq)); });
}
