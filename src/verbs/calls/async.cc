#include <endian.h>

#include "verbs/entry.h"
#include "verbs/kernel/relayed_cm.h"
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

// Calls `visit` with the event as the application gets it: once, and for a QP that has several
// structs once for each. Not at all for an object without a cookie: the application does not know
// it yet.
template <typename Visit>
void for_each_event(ibv_event_type type, device::Object* object, Visit visit) {
  void* cookie = object ? object->cookie : nullptr;
  if (is_cq_event(type)) {
    if (auto* cq = static_cast<Cq*>(cookie))
      visit(Event{&cq->cq, type, &cq->asynchronous_reported});
  } else if (is_srq_event(type)) {
    if (auto* srq = static_cast<Srq*>(cookie))
      visit(Event{&srq->srq, type, &srq->asynchronous_reported});
  } else if (is_qp_event(type)) {
    auto* core = static_cast<QpCore*>(cookie);
    if (!core) return;
    std::lock_guard lock(core->mutex);
    for (Qp* qp : core->shells) visit(Event{&qp->qp, type, &qp->asynchronous_reported});
  } else {
    visit(Event{nullptr, type, nullptr});
  }
}

// Takes the oldest event of a device that has a descriptor for its events. 0 or errno. Where an XRC target QP has
// several structs (ibv_open_qp), the event is of the oldest one: the descriptor tells of one event.
int take_from_device(Context& context, Event* out, int* port) {
  for (bool found = false; !found;) {
    device::AsynchronousEvent event;
    if (int error = context.device->take_asynchronous(&event)) return error;
    for_each_event(event.type, event.object, [&](const Event& seen) {
      if (found) return;
      *out = seen;
      *port = event.port;
      if (seen.reported) ++*seen.reported;
      found = true;
    });
    context.device->acknowledge(event);
  }
  return 0;
}

}  // namespace

void Context::asynchronous(ibv_event_type type, device::Object* object) {
  for_each_event(type, object, [&](const Event& event) { async_events.push(event); });
}

void Context::seeks() {
  process().agent.has_news();
}

void Context::has_letters() {
  process().agent.has_news();
}

void Context::cm_news(device::CmNews news, std::uint32_t qpn) {
  relay::Relay* const relay = relay_if_any();
  if (relay == nullptr) return;
  relay->take_news(news, htobe64(rnic->guid()), qpn);
  process().agent.has_news();
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
    int port = 1;
    if (int e = ours->device->asynchronous_descriptor() >= 0
                    ? take_from_device(*ours, &event, &port)
                    : ours->async_events.take(&event)) {
      return e;
    }
    out->event_type = event.type;
    if (is_cq_event(event.type)) {
      out->element.cq = static_cast<ibv_cq*>(event.element);
    } else if (is_srq_event(event.type)) {
      out->element.srq = static_cast<ibv_srq*>(event.element);
    } else if (is_qp_event(event.type)) {
      out->element.qp = static_cast<ibv_qp*>(event.element);
    } else {
      out->element.port_num = port;
    }
    return 0;
  }));
}

// An event does not tell of which device it is, but its object does. An event without an object needs no
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
