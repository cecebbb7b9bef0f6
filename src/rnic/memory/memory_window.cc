#include "rnic/memory/memory.h"

// Binding and invalidation of memory windows (IBTA vol. 1 clause 10.6.7.2).
namespace ferry::rnic {

MemoryWindow* MemoryTable::window(std::uint32_t handle) const {
  Extent* extent = extents_[(handle >> 8) & (kSlots - 1)];
  if (extent == nullptr || !extent->is_window || extent->key >> 8 != handle) return nullptr;
  return static_cast<MemoryWindow*>(extent);
}

void MemoryTable::unbind(MemoryWindow* window) {
  if (window->region != nullptr) --window->region->windows;
  window->region = nullptr;
  window->qp = nullptr;
  window->access = 0;
  window->length = 0;
}

bool MemoryTable::bind(const transport::WindowBinding& binding, const ProtectionDomain* pd,
                       const QueuePair* qp) {
  MemoryWindow* target = window(binding.window);
  if (target == nullptr || target->pd != pd || binding.rkey >> 8 != target->key >> 8) return false;
  const bool type_1 = target->type == IBV_MW_TYPE_1;
  if (type_1 && binding.length == 0) {
    unbind(target);
    target->key = binding.rkey;
    return true;
  }
  // A window of type 2 must be invalidated before it is bound again.
  if (!type_1 && (target->region != nullptr || binding.length == 0)) return false;
  Extent* extent = extents_[binding.lkey >> 16];
  if (extent == nullptr || extent->is_window || extent->key != binding.lkey || extent->pd != pd) {
    return false;
  }
  auto* region = static_cast<MemoryRegion*>(extent);
  const bool writes = (binding.access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if ((region->access & IBV_ACCESS_MW_BIND) == 0 || (region->access & IBV_ACCESS_ZERO_BASED) != 0 ||
      (writes && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
    return false;
  }
  std::byte* address = region->locate(binding.address, binding.length);
  if (address == nullptr) return false;
  unbind(target);
  target->region = region;
  ++region->windows;
  target->key = binding.rkey;
  target->address = address;
  target->length = binding.length;
  target->iova = (binding.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : binding.address;
  target->access = binding.access;
  target->qp = type_1 ? nullptr : qp;
  return true;
}

bool MemoryTable::invalidate(std::uint32_t rkey, const ProtectionDomain* pd, const QueuePair* qp) {
  Extent* extent = extents_[rkey >> 16];
  if (extent == nullptr || !extent->is_window || extent->key != rkey || extent->pd != pd ||
      extent->qp != qp) {
    return false;
  }
  unbind(static_cast<MemoryWindow*>(extent));
  return true;
}

}  // namespace ferry::rnic
