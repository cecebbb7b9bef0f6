#include "verbs/entry.h"
#include "verbs/objects.h"

// Memory windows. ibv_alloc_mw() and its like are inline functions that call these.
namespace ferry::verbs {

Mw* wrap_mw(Context& context, ibv_pd* pd, device::Mw* device, ibv_mw_type type) {
  return adopt<Mw>(context, device, [&](Mw& mw) {
    mw.mw.context = context.application();
    mw.mw.pd = pd;
    mw.mw.rkey = device->rkey();
    mw.mw.handle = device->handle();
    mw.mw.type = type;
    mw.device = device;
    device->cookie = &mw;
    ++to_pd(pd)->users;
  });
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  ibv_mw* mw = nullptr;
  const int error = guarded([&] {
    Context& context = *context_of(pd->context);
    if (int e = usable(context)) return e;
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return EINVAL;
    device::Mw* device = nullptr;
    if (int e = context.device->alloc_mw(to_pd(pd)->device, type, &device)) return e;
    mw = &wrap_mw(context, pd, device, type)->mw;
    return 0;
  });
  return pointer_or_errno(error, mw);
}

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  return guarded([&] {
    if (!qp) return EINVAL;
    const ibv_mr* mr = bind->bind_info.mr;
    Context* context = common_context({qp->context, mw->context, mr ? mr->context : mw->context});
    if (!context) return EINVAL;
    if (int e = usable(*context)) return e;
    const ibv_mw_bind_info& info = bind->bind_info;
    const device::MwBind wanted{
        bind->wr_id, bind->send_flags, info.mr ? to_mr(info.mr)->device : nullptr,
        info.addr,   info.length,      info.mw_access_flags};
    return to_qp(qp)->device->bind_mw(to_mw(mw)->device, wanted, &mw->rkey);
  });
}

int dealloc_mw(ibv_mw* mw) {
  return guarded([&] {
    Context& context = *context_of(mw->context);
    if (int e = usable(context)) return e;
    if (int e = context.device->destroy(to_mw(mw)->device)) return e;
    --to_pd(mw->pd)->users;
    delete to_mw(mw);
    return 0;
  });
}

}  // namespace ferry::verbs
