#include "verbs/entry.h"
#include "verbs/objects.h"
#include "verbs/process.h"
#include "verbs/stock.h"

namespace ferry::verbs {
namespace {

bool is_cq_event(ibv_event_type type) {
  return type == IBV_EVENT_CQ_ERR;
}

bool is_srq_event(ibv_event_type type) {
  return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
}

bool is_qp_event(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return true;
    default: return false;
  }
}

}  // namespace

// An event of an object without a cookie is dropped: the application does not know the object yet.
void Context::asynchronous(ibv_event_type type, device::Object* object) {
  void* cookie = object ? object->cookie : nullptr;
  if (is_cq_event(type)) {
    if (auto* cq = static_cast<Cq*>(cookie))
      async_events.push({&cq->cq, type, &cq->asynchronous_reported});
  } else if (is_srq_event(type)) {
    if (auto* srq = static_cast<Srq*>(cookie))
      async_events.push({&srq->srq, type, &srq->asynchronous_reported});
  } else if (is_qp_event(type)) {
    auto* core = static_cast<QpCore*>(cookie);
    if (!core) return;
    std::lock_guard lock(core->mutex);
    for (Qp* qp : core->shells) async_events.push({&qp->qp, type, &qp->asynchronous_reported});
  } else {
    async_events.push({nullptr, type, nullptr});
  }
}

void Context::seeks() {
  process().agent.seeks();
}

namespace {

void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& condition, std::uint32_t& count) {
  pthread_mutex_lock(&mutex);
  ++count;
  pthread_cond_signal(&condition);
  pthread_mutex_unlock(&mutex);
}

}  // namespace
}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT int ibv_get_async_event(ibv_context* context, ibv_async_event* out) {
  if (!context || !out) return minus_one_or_errno(EINVAL);
  Context* ours = context_of(context);
  if (!ours) return FERRY_STOCK(ibv_get_async_event, "IBVERBS_1.1")(context, out);
  return minus_one_or_errno(guarded([&] {
    if (int e = usable(*ours)) return e;
    Event event;
    if (int e = ours->async_events.take(&event)) return e;
    out->event_type = event.type;
    if (is_cq_event(event.type)) {
      out->element.cq = static_cast<ibv_cq*>(event.element);
    } else if (is_srq_event(event.type)) {
      out->element.srq = static_cast<ibv_srq*>(event.element);
    } else if (is_qp_event(event.type)) {
      out->element.qp = static_cast<ibv_qp*>(event.element);
    } else {
      out->element.port_num = 1;
    }
    return 0;
  }));
}

// An event does not tell whose it is, but its object does. An event without an object needs no
// acknowledgement: the stock function does nothing for it.
FERRY_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  if (!event) return;
  if (is_cq_event(event->event_type) && context_of(event->element.cq->context)) {
    ibv_cq* cq = event->element.cq;
    acknowledge(cq->mutex, cq->cond, cq->async_events_completed);
  } else if (is_srq_event(event->event_type) && context_of(event->element.srq->context)) {
    ibv_srq* srq = event->element.srq;
    acknowledge(srq->mutex, srq->cond, srq->events_completed);
  } else if (is_qp_event(event->event_type) && context_of(event->element.qp->context)) {
    ibv_qp* qp = event->element.qp;
    acknowledge(qp->mutex, qp->cond, qp->events_completed);
  } else {
    FERRY_STOCK(ibv_ack_async_event, "IBVERBS_1.1")(event);
  }
}
