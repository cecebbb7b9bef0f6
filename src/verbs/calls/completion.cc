#include "verbs/entry.h"
#include "verbs/objects.h"
#include "verbs/stock.h"

namespace ferry::verbs {

// --- data path ----------------------------------------------------------------------------------

int poll_cq(ibv_cq* cq, int count, ibv_wc* out) {
  return to_cq(cq)->device->poll(count, out);
}

int request_notify_cq(ibv_cq* cq, int solicited_only) {
  return to_cq(cq)->device->arm(solicited_only != 0);
}

// --- creation -----------------------------------------------------------------------------------

Cq* wrap_cq(Context& context, device::Cq* device, void* cq_context, ibv_comp_channel* channel) {
  return adopt<Cq>(context, device, [&](Cq& cq) {
    cq.cq.context = context.application();
    cq.cq.channel = channel;
    cq.cq.cq_context = cq_context;
    cq.cq.cqe = device->capacity();
    pthread_mutex_init(&cq.cq.mutex, nullptr);
    pthread_cond_init(&cq.cq.cond, nullptr);
    cq.device = device;
    set_cq_ex_functions(cq);
    if (channel) {
      std::lock_guard lock(context.mutex);
      ++channel->refcnt;
    }
    device->cookie = &cq;
  });
}

int make_cq(Context& context, const device::CqInit& wanted, void* cq_context,
            ibv_comp_channel* channel, int vector, Cq** out) {
  if (int error = usable(context)) return error;
  if (wanted.cqe < 1 || vector < 0 || vector >= context.application()->num_comp_vectors)
    return EINVAL;
  if (channel && channel->context != context.application()) return EINVAL;
  device::CqInit init = wanted;
  init.channel = channel ? to_channel(channel)->device : nullptr;
  init.vector = vector;
  device::Cq* device = nullptr;
  if (int error = context.device->create_cq(init, &device)) return error;
  *out = wrap_cq(context, device, cq_context, channel);
  return 0;
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attributes) {
  return guarded([&] {
    if (!attributes) return EINVAL;
    if (int error = usable(*context_of(cq->context))) return error;
    if (attributes->attr_mask != IBV_CQ_ATTR_MODERATE) return EINVAL;
    return to_cq(cq)->device->moderate(attributes->moderate.cq_count,
                                       attributes->moderate.cq_period);
  });
}

namespace {

int make_channel(Context& context, Channel** out) {
  if (int error = usable(context)) return error;
  auto channel = std::make_unique<Channel>();
  int error = context.device->create_channel(&channel->device);
  if (error == EOPNOTSUPP) error = channel->events.open();
  if (error) return error;
  channel->channel.context = context.application();
  channel->channel.fd =
      channel->device ? channel->device->descriptor() : channel->events.descriptor();
  *out = channel.release();
  return 0;
}

// Takes the oldest event of the channel; *out: the application's CQ that raised it. 0 or errno.
int take_event(Channel& channel, ibv_cq** out) {
  if (!channel.device) {
    Event event;
    if (int error = channel.events.take(&event)) return error;
    *out = static_cast<ibv_cq*>(event.element);
    return 0;
  }
  device::Cq* device = nullptr;
  if (int error = channel.device->take(&device)) return error;
  auto* cq = static_cast<Cq*>(device->cookie);
  ++cq->completions_reported;
  device->acknowledge();
  *out = &cq->cq;
  return 0;
}

int destroy_channel(Context& context, Channel* channel) {
  {
    std::lock_guard lock(context.mutex);
    if (channel->channel.refcnt) return EBUSY;
  }
  if (channel->device) {
    if (int error = context.device->destroy(channel->device)) return error;
  }
  delete channel;
  return 0;
}

int destroy_cq(Context& context, Cq* cq) {
  if (int error = usable(context)) return error;
  if (int error = context.device->destroy(cq->device)) return error;
  // No event is raised from here on. Events that the application took must be acknowledged first
  // (ibv_destroy_cq(3)).
  ibv_comp_channel* channel = cq->cq.channel;
  if (channel) to_channel(channel)->events.forget(&cq->cq);
  context.async_events.forget(&cq->cq);
  wait_for_acknowledgements(cq->cq.mutex, cq->cq.cond, cq->cq.comp_events_completed,
                            cq->completions_reported);
  wait_for_acknowledgements(cq->cq.mutex, cq->cq.cond, cq->cq.async_events_completed,
                            cq->asynchronous_reported);
  if (channel) {
    std::lock_guard lock(context.mutex);
    --channel->refcnt;
  }
  if (cq->parent_domain) --cq->parent_domain->users;
  pthread_cond_destroy(&cq->cq.cond);
  pthread_mutex_destroy(&cq->cq.mutex);
  delete cq;
  return 0;
}

}  // namespace
}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (!context) return pointer_or_errno<ibv_comp_channel>(EINVAL, nullptr);
  Context* ours = context_of(context);
  if (!ours) return FERRY_STOCK(ibv_create_comp_channel, "IBVERBS_1.0")(context);
  Channel* channel = nullptr;
  const int error = guarded([&] { return make_channel(*ours, &channel); });
  return pointer_or_errno(error, error ? nullptr : &channel->channel);
}

FERRY_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  if (!channel) return EINVAL;
  Context* ours = context_of(channel->context);
  if (!ours) return FERRY_STOCK(ibv_destroy_comp_channel, "IBVERBS_1.0")(channel);
  return guarded([&] { return destroy_channel(*ours, to_channel(channel)); });
}

FERRY_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                                   ibv_comp_channel* channel, int comp_vector) {
  if (!context) return pointer_or_errno<ibv_cq>(EINVAL, nullptr);
  Context* ours = context_of(context);
  if (!ours) {
    return FERRY_STOCK(ibv_create_cq, "IBVERBS_1.1")(context, cqe, cq_context, channel,
                                                     comp_vector);
  }
  Cq* cq = nullptr;
  const int error =
      guarded([&] { return make_cq(*ours, {cqe}, cq_context, channel, comp_vector, &cq); });
  return pointer_or_errno(error, error ? nullptr : &cq->cq);
}

FERRY_EXPORT int ibv_resize_cq(ibv_cq* cq, int cqe) {
  if (!cq) return EINVAL;
  Context* ours = context_of(cq->context);
  if (!ours) return FERRY_STOCK(ibv_resize_cq, "IBVERBS_1.1")(cq, cqe);
  return guarded([&] {
    if (int e = usable(*ours)) return e;
    if (cqe < 1) return EINVAL;
    if (int e = to_cq(cq)->device->resize(cqe)) return e;
    cq->cqe = to_cq(cq)->device->capacity();
    return 0;
  });
}

FERRY_EXPORT int ibv_destroy_cq(ibv_cq* cq) {
  if (!cq) return EINVAL;
  Context* ours = context_of(cq->context);
  if (!ours) return FERRY_STOCK(ibv_destroy_cq, "IBVERBS_1.1")(cq);
  return guarded([&] { return destroy_cq(*ours, to_cq(cq)); });
}

FERRY_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  if (!channel || !cq || !cq_context) return minus_one_or_errno(EINVAL);
  Context* ours = context_of(channel->context);
  if (!ours) return FERRY_STOCK(ibv_get_cq_event, "IBVERBS_1.1")(channel, cq, cq_context);
  return minus_one_or_errno(guarded([&] {
    if (int e = usable(*ours)) return e;
    if (int e = take_event(*to_channel(channel), cq)) return e;
    *cq_context = (*cq)->cq_context;
    return 0;
  }));
}

FERRY_EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned int nevents) {
  if (!cq) return;
  if (!context_of(cq->context)) return FERRY_STOCK(ibv_ack_cq_events, "IBVERBS_1.1")(cq, nevents);
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += nevents;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}
