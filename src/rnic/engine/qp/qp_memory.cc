#include <algorithm>
#include <atomic>
#include <cstring>

#include "rnic/engine/engine.h"
#include "rnic/engine/qp/queue_pair.h"
#include "rnic/memory/copy.h"

// How a QP's transport uses application memory: the checks of keys and rights, and the copies.
namespace ferry::rnic {

using transport::MemoryResult;

namespace {

// Where a region's iova is not its address, an aligned remote address may name unaligned memory.
bool is_aligned(const std::byte* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % 8 == 0;
}

}  // namespace

MemoryResult QueuePair::gather(std::span<const transport::Sge> sges, std::uint64_t offset,
                               std::byte* out, std::uint32_t length) const {
  for (const transport::Sge& sge : sges) {
    if (length == 0) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const auto part =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(sge.length - offset, length));
    const std::byte* memory =
        engine_.objects().memory().resolve_local(sge.lkey, init_.pd, sge.address + offset, part, 0);
    if (memory == nullptr) return MemoryResult::kAccessError;
    if (memory == MemoryTable::nowhere()) {
      std::memset(out, 0, part);
    } else if (!copy_from_application(out, memory, part)) {
      return MemoryResult::kFault;
    }
    out += part;
    length -= part;
    offset = 0;
  }
  return length == 0 ? MemoryResult::kOk : MemoryResult::kAccessError;
}

MemoryResult QueuePair::scatter(const ProtectionDomain* pd, std::span<const transport::Sge> sges,
                                std::uint64_t offset, std::span<const std::byte> data) const {
  for (const transport::Sge& sge : sges) {
    if (data.empty()) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const auto part = std::min<std::uint64_t>(sge.length - offset, data.size());
    std::byte* memory = engine_.objects().memory().resolve_local(sge.lkey, pd, sge.address + offset,
                                                                 part, transport::kLocalWrite);
    if (memory == nullptr) return MemoryResult::kAccessError;
    if (memory != MemoryTable::nowhere() && !copy_to_application(memory, data.data(), part)) {
      return MemoryResult::kFault;
    }
    data = data.subspan(part);
    offset = 0;
  }
  return data.empty() ? MemoryResult::kOk : MemoryResult::kAccessError;
}

MemoryResult QueuePair::scatter(std::span<const transport::Sge> sges, std::uint64_t offset,
                                std::span<const std::byte> data) {
  return scatter(init_.pd, sges, offset, data);
}

MemoryResult QueuePair::scatter_receive(std::span<const transport::Sge> sges, std::uint64_t offset,
                                        std::span<const std::byte> data) {
  return scatter(init_.srq != nullptr ? init_.srq->init().pd : remote_pd(), sges, offset, data);
}

const ProtectionDomain* QueuePair::remote_pd() const {
  if (init_.xrcd == nullptr) return init_.pd;
  return selected_srq_ != nullptr ? selected_srq_->init().pd : nullptr;
}

std::byte* QueuePair::region(std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                             std::uint32_t access) const {
  const ProtectionDomain* pd = remote_pd();
  if (pd == nullptr || (attributes_.qp_access_flags & access) != access) return nullptr;
  return engine_.objects().memory().resolve_remote(rkey, pd, this, address, length, access);
}

MemoryResult QueuePair::check_region(std::uint32_t rkey, std::uint64_t address,
                                     std::uint64_t length, std::uint32_t access) {
  if (length == 0) {
    // The key is not checked, but the access rights of the QP are.
    return (attributes_.qp_access_flags & access) == access ? MemoryResult::kOk
                                                            : MemoryResult::kAccessError;
  }
  return region(rkey, address, length, access) != nullptr ? MemoryResult::kOk
                                                          : MemoryResult::kAccessError;
}

MemoryResult QueuePair::write_region(std::uint32_t rkey, std::uint64_t address,
                                     std::span<const std::byte> data) {
  std::byte* memory = region(rkey, address, data.size(), transport::kRemoteWrite);
  if (memory == nullptr) return MemoryResult::kAccessError;
  return copy_to_application(memory, data.data(), data.size()) ? MemoryResult::kOk
                                                               : MemoryResult::kFault;
}

MemoryResult QueuePair::atomic(transport::Operation operation, std::uint32_t rkey,
                               std::uint64_t address, std::uint64_t compare_add, std::uint64_t swap,
                               std::uint64_t* original) {
  std::byte* memory = region(rkey, address, sizeof *original, transport::kRemoteAtomic);
  if (memory == nullptr || !is_aligned(memory)) return MemoryResult::kAccessError;
  const bool done = operation == transport::Operation::kCompareSwap
                        ? compare_swap_application(memory, compare_add, swap, original)
                        : fetch_add_application(memory, compare_add, original);
  return done ? MemoryResult::kOk : MemoryResult::kFault;
}

MemoryResult QueuePair::write_atomic(std::uint32_t rkey, std::uint64_t address,
                                     std::span<const std::byte, 8> data) {
  std::byte* memory = region(rkey, address, data.size(), transport::kRemoteWrite);
  if (memory == nullptr || !is_aligned(memory)) return MemoryResult::kAccessError;
  std::uint64_t value;
  std::memcpy(&value, data.data(), sizeof value);
  return store_application(memory, value) ? MemoryResult::kOk : MemoryResult::kFault;
}

MemoryResult QueuePair::flush_region(const wire::Feth& what, std::uint32_t rkey,
                                     std::uint64_t address, std::uint64_t length) {
  const bool persistent = (what.placement & wire::Feth::kPersistence) != 0;
  const std::uint32_t access = kFlushGlobal | (persistent ? kFlushPersistent : 0);
  const ProtectionDomain* pd = remote_pd();
  if (pd == nullptr || (attributes_.qp_access_flags & access) != access) {
    return MemoryResult::kAccessError;
  }
  const Extent* extent = engine_.objects().memory().find_remote(rkey, pd, this, access);
  const bool whole = what.selectivity == wire::Feth::kWholeRegion;
  if (extent == nullptr || (!whole && extent->locate(address, length) == nullptr)) {
    return MemoryResult::kAccessError;
  }
  // WRITEs of this QP are stores of this processor: a fence suffices to make them visible to all.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return MemoryResult::kOk;
}

bool QueuePair::invalidate(std::uint32_t rkey, bool remote) {
  const ProtectionDomain* pd = remote ? remote_pd() : init_.pd;
  return pd != nullptr && engine_.objects().memory().invalidate(rkey, pd, this);
}

transport::Status QueuePair::bind_window(const transport::WindowBinding& binding) {
  return engine_.objects().memory().bind(binding, init_.pd, this) ? transport::Status::kSuccess
                                                                  : transport::Status::kWindowBind;
}

}  // namespace ferry::rnic
