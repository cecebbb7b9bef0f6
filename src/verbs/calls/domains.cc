#include "verbs/entry.h"
#include "verbs/objects.h"
#include "verbs/stock.h"

// Protection domains, and what groups them: parent domains and thread domains.
namespace ferry::verbs {

Pd* wrap_pd(Context& context, device::Pd* device) {
  return adopt<Pd>(context, device, [&](Pd& pd) {
    pd.pd.context = context.application();
    pd.device = device;
    device->cookie = &pd;
    std::lock_guard lock(context.mutex);
    pd.pd.handle = context.next_handle++;
    context.pds.emplace(pd.pd.handle, &pd);
  });
}

namespace {

// Gives up one reference; the last one frees the struct. Called with the context's mutex held.
void drop(Pd* pd) {
  if (--pd->references == 0) delete pd;
}

int dealloc(Context& context, Pd* pd) {
  if (int error = usable(context)) return error;
  std::lock_guard lock(context.mutex);
  if (!pd->device) return EINVAL;  // imported, and deallocated by another reference
  if (pd->users != 0) return EBUSY;
  if (pd->parent_of) {
    --pd->parent_of->users;
    if (pd->td) --pd->td->users;
  } else {
    if (int error = context.device->destroy(pd->device)) return error;
    context.pds.erase(pd->pd.handle);
  }
  pd->device = nullptr;
  drop(pd);
  return 0;
}

int make_parent_domain(Context& context, const ibv_parent_domain_init_attr& attributes, Pd** out) {
  constexpr std::uint32_t kSupported =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if (int error = usable(context)) return error;
  if (attributes.comp_mask & ~kSupported) return EOPNOTSUPP;
  // The queues of our RNICs are not in memory that anybody else could provide: the allocators are
  // never asked.
  if ((attributes.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) &&
      (!attributes.alloc || !attributes.free)) {
    return EINVAL;
  }
  if (!attributes.pd || attributes.pd->context != context.application()) return EINVAL;
  if (attributes.td && attributes.td->context != context.application()) return EINVAL;
  auto pd = std::make_unique<Pd>();
  pd->pd.context = context.application();
  pd->pd.handle = attributes.pd->handle;
  std::lock_guard lock(context.mutex);
  Pd* parent_of = to_pd(attributes.pd);
  if (!parent_of->device) return EINVAL;
  pd->device = parent_of->device;
  pd->parent_of = parent_of;
  ++parent_of->users;
  if (attributes.td) {
    pd->td = to_td(attributes.td);
    ++pd->td->users;
  }
  *out = pd.release();
  return 0;
}

}  // namespace

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes) {
  Td* td = nullptr;
  const int error = guarded([&] {
    Context& ours = *context_of(context);
    if (int e = usable(ours)) return e;
    if (!attributes || attributes->comp_mask) return EINVAL;
    td = new Td;
    td->td.context = context;
    return 0;
  });
  return pointer_or_errno(error, error ? nullptr : &td->td);
}

int dealloc_td(ibv_td* td) {
  if (to_td(td)->users != 0) return EBUSY;
  delete to_td(td);
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
  Pd* pd = nullptr;
  const int error = guarded([&] {
    if (!attributes) return EINVAL;
    return make_parent_domain(*context_of(context), *attributes, &pd);
  });
  return pointer_or_errno(error, error ? nullptr : &pd->pd);
}

}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  if (!context) return pointer_or_errno<ibv_pd>(EINVAL, nullptr);
  Context* ours = context_of(context);
  if (!ours) return FERRY_STOCK(ibv_alloc_pd, "IBVERBS_1.1")(context);
  ibv_pd* pd = nullptr;
  const int error = guarded([&] {
    if (int e = usable(*ours)) return e;
    ferry::device::Pd* device = nullptr;
    if (int e = ours->device->alloc_pd(&device)) return e;
    pd = &wrap_pd(*ours, device)->pd;
    return 0;
  });
  return pointer_or_errno(error, pd);
}

FERRY_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  if (!pd) return EINVAL;
  Context* ours = context_of(pd->context);
  if (!ours) return FERRY_STOCK(ibv_dealloc_pd, "IBVERBS_1.1")(pd);
  return guarded([&] { return dealloc(*ours, to_pd(pd)); });
}

// Within the process an import is another reference to the same struct.
FERRY_EXPORT ibv_pd* ibv_import_pd(ibv_context* context, uint32_t handle) {
  if (!context) return pointer_or_errno<ibv_pd>(EINVAL, nullptr);
  Context* ours = context_of(context);
  if (!ours) return FERRY_STOCK(ibv_import_pd, "IBVERBS_1.10")(context, handle);
  ibv_pd* pd = nullptr;
  const int error = guarded([&] {
    if (int e = usable(*ours)) return e;
    std::lock_guard lock(ours->mutex);
    const auto found = ours->pds.find(handle);
    if (found == ours->pds.end()) return ENOENT;
    ++found->second->references;
    pd = &found->second->pd;
    return 0;
  });
  return pointer_or_errno(error, pd);
}

FERRY_EXPORT void ibv_unimport_pd(ibv_pd* pd) {
  if (!pd) return;
  Context* ours = context_of(pd->context);
  if (!ours) return FERRY_STOCK(ibv_unimport_pd, "IBVERBS_1.10")(pd);
  if (usable(*ours) != 0) return;
  std::lock_guard lock(ours->mutex);
  drop(to_pd(pd));
}
