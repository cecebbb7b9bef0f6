#include <cstring>

#include "verbs/entry.h"
#include "verbs/objects.h"
#include "verbs/stock.h"

namespace ferry::verbs {
namespace {

constexpr unsigned kSupportedAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND |
    IBV_ACCESS_HUGETLB | device::kFlushGlobal | device::kFlushPersistent;

// The flags that count for the device. Huge pages are a hint about pinning, and our RNIC never
// pins.
unsigned device_access(const Context& context, unsigned access) {
  if (context.device->checks_requests()) return access;
  return access & kSupportedAccess & ~static_cast<unsigned>(IBV_ACCESS_HUGETLB);
}

int check_access(const Context& context, unsigned access) {
  if (context.device->checks_requests()) return 0;
  access &= ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  if (access & ~kSupportedAccess) return EOPNOTSUPP;
  const bool remote_changes = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  return remote_changes && !(access & IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0;  // clause 11.2.8.2
}

int register_memory(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                    unsigned access, ibv_mr** out) {
  Context* context = context_of(pd->context);
  if (int error = usable(*context)) return error;
  if (int error = check_access(*context, access)) return error;
  const device::MrInit init{to_pd(pd)->device, address, length, iova,
                            device_access(*context, access)};
  device::Mr* device = nullptr;
  if (int error = context->device->reg_mr(init, &device)) return error;
  *out = &wrap_mr(*context, pd, device, address, length)->mr;
  return 0;
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
  ibv_mr* mr = nullptr;
  const int error =
      guarded([&] { return register_memory(pd, address, length, iova, access, &mr); });
  return pointer_or_errno(error, mr);
}

// Gives up one reference; the last one frees the struct. Called with the context's mutex held.
void drop(Mr* mr) {
  if (--mr->references == 0) delete mr;
}

int deregister(Context& context, Mr* mr) {
  if (int error = usable(context)) return error;
  std::lock_guard lock(context.mutex);
  if (!mr->device) return EINVAL;  // imported, and deregistered by another reference
  if (int error = context.device->destroy(mr->device)) return error;
  mr->device = nullptr;
  --to_pd(mr->mr.pd)->users;
  context.mrs.erase(mr->mr.handle);
  drop(mr);
  return 0;
}

// 0 or errno. *code tells what is left of the MR when the device fails.
int reregister(Context& context, Mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length,
               unsigned access, ibv_rereg_mr_err_code* code) {
  if (int error = usable(context)) return error;
  const bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
  const bool changes_pd = flags & IBV_REREG_MR_CHANGE_PD;
  if (!flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)) return EINVAL;
  if (moves && (!address || !length)) return EINVAL;
  if (changes_pd && (!pd || pd->context != context.application())) return EINVAL;
  if (flags & IBV_REREG_MR_CHANGE_ACCESS) {
    if (int error = check_access(context, access)) return error;
  } else if (access) {
    return EINVAL;
  }
  const device::MrInit init{changes_pd ? to_pd(pd)->device : nullptr, address, length,
                            reinterpret_cast<std::uintptr_t>(address),
                            device_access(context, access)};
  if (int error = context.device->rereg_mr(mr->device, flags, init)) {
    if (context.device->checks_requests()) *code = IBV_REREG_MR_ERR_CMD;
    return error;
  }
  if (moves) {
    mr->mr.addr = address;
    mr->mr.length = length;
  }
  if (changes_pd) {
    --to_pd(mr->mr.pd)->users;
    ++to_pd(pd)->users;
    mr->mr.pd = pd;
  }
  mr->mr.lkey = mr->device->lkey();
  mr->mr.rkey = mr->device->rkey();
  return 0;
}

const Mr* find_by_lkey(Context& context, std::uint32_t lkey) {
  for (const auto& [handle, mr] : context.mrs) {
    if (mr->mr.lkey == lkey) return mr;
  }
  return nullptr;
}

// Our MRs are always on demand, and the CPU brings their memory in when a packet needs it: there is
// nothing to fetch ahead. But the errors that the call promises to report are reported.
int check_advice(Context& context, ibv_pd* pd, unsigned advice, std::uint32_t flags,
                 const ibv_sge* list, std::uint32_t count) {
  if (int error = usable(context)) return error;
  switch (advice) {
    case IBV_ADVISE_MR_ADVICE_PREFETCH:
    case IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE:
    case IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: break;
    default: return EOPNOTSUPP;
  }
  if ((flags & ~static_cast<std::uint32_t>(IBV_ADVISE_MR_FLAG_FLUSH)) || !list || !count)
    return EINVAL;
  std::lock_guard lock(context.mutex);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Mr* mr = find_by_lkey(context, list[i].lkey);
    if (!mr) return EFAULT;
    if (to_pd(mr->mr.pd)->device != to_pd(pd)->device) return EPERM;
  }
  return 0;
}

}  // namespace

Mr* wrap_mr(Context& context, ibv_pd* pd, device::Mr* device, void* address, std::size_t length) {
  return adopt<Mr>(context, device, [&](Mr& mr) {
    mr.mr.context = context.application();
    mr.mr.pd = pd;
    mr.mr.addr = address;
    mr.mr.length = length;
    mr.mr.lkey = device->lkey();
    mr.mr.rkey = device->rkey();
    mr.device = device;
    device->cookie = &mr;
    std::lock_guard lock(context.mutex);
    mr.mr.handle = context.next_handle++;
    context.mrs.emplace(mr.mr.handle, &mr);
    ++to_pd(pd)->users;
  });
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
  ibv_mr* mr = nullptr;
  const int error = guarded([&] {
    Context* context = context_of(pd->context);
    if (int e = usable(*context)) return e;
    device::Mr* device = nullptr;
    if (int e = context->device->alloc_null_mr(to_pd(pd)->device, &device)) return e;
    mr = &wrap_mr(*context, pd, device, nullptr, 0)->mr;
    return 0;
  });
  return pointer_or_errno(error, mr);
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count) {
  unsigned code;  // a program may have put anything into the enum
  std::memcpy(&code, &advice, sizeof code);
  return guarded(
      [&] { return check_advice(*context_of(pd->context), pd, code, flags, list, count); });
}

}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  if (!pd) return pointer_or_errno<ibv_mr>(EINVAL, nullptr);
  if (!context_of(pd->context))
    return FERRY_STOCK(ibv_reg_mr, "IBVERBS_1.1")(pd, addr, length, access);
  return reg_mr(pd, addr, length, reinterpret_cast<uintptr_t>(addr), static_cast<unsigned>(access));
}

FERRY_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                     int access) {
  if (!pd) return pointer_or_errno<ibv_mr>(EINVAL, nullptr);
  if (!context_of(pd->context)) {
    return FERRY_STOCK(ibv_reg_mr_iova, "IBVERBS_1.7")(pd, addr, length, iova, access);
  }
  return reg_mr(pd, addr, length, iova, static_cast<unsigned>(access));
}

FERRY_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                      unsigned int access) {
  if (!pd) return pointer_or_errno<ibv_mr>(EINVAL, nullptr);
  if (!context_of(pd->context)) {
    return FERRY_STOCK(ibv_reg_mr_iova2, "IBVERBS_1.8")(pd, addr, length, iova, access);
  }
  return reg_mr(pd, addr, length, iova, access);
}

FERRY_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                       int fd, int access) {
  if (!pd) return pointer_or_errno<ibv_mr>(EINVAL, nullptr);
  if (!context_of(pd->context)) {
    return FERRY_STOCK(ibv_reg_dmabuf_mr, "IBVERBS_1.12")(pd, offset, length, iova, fd, access);
  }
  return pointer_or_errno<ibv_mr>(EOPNOTSUPP, nullptr);
}

FERRY_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  if (!mr) return EINVAL;
  Context* ours = context_of(mr->context);
  if (!ours) return FERRY_STOCK(ibv_dereg_mr, "IBVERBS_1.1")(mr);
  return guarded([&] { return deregister(*ours, to_mr(mr)); });
}

// An MR of Ferry's own device stays valid when this fails: of libibverbs' codes for failures only
// IBV_REREG_MR_ERR_INPUT says so.
FERRY_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length,
                              int access) {
  if (!mr) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  Context* ours = context_of(mr->context);
  if (!ours) return FERRY_STOCK(ibv_rereg_mr, "IBVERBS_1.1")(mr, flags, pd, addr, length, access);
  ibv_rereg_mr_err_code code = IBV_REREG_MR_ERR_INPUT;
  const int error = guarded([&] {
    return reregister(*ours, to_mr(mr), flags, pd, addr, length, static_cast<unsigned>(access),
                      &code);
  });
  if (!error) return 0;
  errno = error;
  return code;
}

// Within the process an import is another reference to the same struct.
FERRY_EXPORT ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t handle) {
  if (!pd) return pointer_or_errno<ibv_mr>(EINVAL, nullptr);
  Context* ours = context_of(pd->context);
  if (!ours) return FERRY_STOCK(ibv_import_mr, "IBVERBS_1.10")(pd, handle);
  ibv_mr* mr = nullptr;
  const int error = guarded([&] {
    if (int e = usable(*ours)) return e;
    std::lock_guard lock(ours->mutex);
    const auto found = ours->mrs.find(handle);
    if (found == ours->mrs.end()) return ENOENT;
    if (to_pd(found->second->mr.pd)->device != to_pd(pd)->device) return EINVAL;
    ++found->second->references;
    mr = &found->second->mr;
    return 0;
  });
  return pointer_or_errno(error, mr);
}

FERRY_EXPORT void ibv_unimport_mr(ibv_mr* mr) {
  if (!mr) return;
  Context* ours = context_of(mr->context);
  if (!ours) return FERRY_STOCK(ibv_unimport_mr, "IBVERBS_1.10")(mr);
  if (usable(*ours) != 0) return;
  std::lock_guard lock(ours->mutex);
  drop(to_mr(mr));
}
