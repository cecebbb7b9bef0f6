#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/objects.h"
#include "device/record_heads.h"
#include "transport/types.h"

// Protection domains, memory regions and memory windows (IBTA vol. 1 clause 10.6).
namespace ferry::rnic {

class QueuePair;

// kFlushPersistent is refused: the RNIC does not know which memory is persistent.
using device::kFlushGlobal;
using device::kFlushPersistent;

using device::Handle;

class ProtectionDomain final : public device::Pd {
 public:
  explicit ProtectionDomain(Handle number) : handle(number) {}
  const Handle handle;
  std::atomic<std::uint32_t> users{0};  // MRs, MWs, QPs, SRQs, AHs
};

// The memory that a key gives access to: a region, or the part of a region that a window is bound
// to.
struct Extent {
  ProtectionDomain* pd = nullptr;
  std::byte* address = nullptr;  // of the byte that requests name by `iova`
  std::uint64_t length = 0;
  std::uint64_t iova = 0;
  std::uint32_t access = 0;  // ibv_access_flags; none: a window that is not bound
  std::uint32_t key = 0;
  const QueuePair* qp = nullptr;  // a bound window of type 2: the one QP whose peer may use it
  bool is_window = false;         // a window: its key is an rkey only
  bool is_null = false;           // an MR without memory

  // Where [from, from + bytes) lies in the process; null: it is not inside the extent.
  std::byte* locate(std::uint64_t from, std::uint64_t bytes) const {
    const std::uint64_t offset = from - iova;  // wraps when `from` is below
    return offset > length || bytes > length - offset ? nullptr : address + offset;
  }
};

// One key serves as lkey and as rkey; `access` tells which uses it allows.
class MemoryRegion final : public device::Mr, public Extent {
 public:
  std::uint32_t lkey() const override { return key; }
  std::uint32_t rkey() const override { return is_null ? 0 : key; }

  Handle handle = 0;
  std::uint32_t windows = 0;  // how many are bound to it
};

class MemoryWindow final : public device::Mw, public Extent {
 public:
  MemoryWindow(Handle handle_number, ibv_mw_type mw_type) : number(handle_number), type(mw_type) {
    is_window = true;
  }
  std::uint32_t rkey() const override { return type == IBV_MW_TYPE_1 ? posted_key : key; }
  // The part of the key that a bind does not change.
  std::uint32_t handle() const override { return key >> 8; }

  const Handle number;
  const ibv_mw_type type;
  MemoryRegion* region = nullptr;  // null: not bound
  std::uint32_t posted_key = 0;    // type 1: the rkey of the latest bind that was posted
};

// key = index:16 | random:8 | consumer:8. The index is drawn at random too, so that a key cannot be
// guessed from another one. Not thread-safe: the caller holds the engine's lock.
class MemoryTable {
 public:
  static constexpr std::uint32_t kSlots = 1u << 16;
  // Limits of a context. Even with both reached, a quarter of the indices is free, so that one is
  // soon found.
  static constexpr std::uint32_t kMaxRegions = kSlots / 2;
  static constexpr std::uint32_t kMaxWindows = kSlots / 4;

  MemoryTable();

  // Enters a region or a window, with a fresh key made of `random` bits. False: the table is full.
  bool insert(Extent* extent, std::uint64_t random);
  // Enters it with this key. False: the index of the key is taken.
  bool insert_with_key(Extent* extent, std::uint32_t key);
  void remove(Extent* extent);

  // Where [address, address + length) of a region lies in the process, if the region belongs to
  // `pd`, allows everything in `access` and contains the range. Null: access error. nowhere(),
  // which must not be read or written: the region is a null MR.
  std::byte* resolve_local(std::uint32_t lkey, const ProtectionDomain* pd, std::uint64_t address,
                           std::uint64_t length, std::uint32_t access) const {
    const Extent* extent = find(lkey, pd, access);
    if (extent == nullptr || extent->is_window) return nullptr;
    return extent->is_null ? nowhere() : extent->locate(address, length);
  }
  static std::byte* nowhere();
  // The same for a region or a window that the peer of `qp` names.
  std::byte* resolve_remote(std::uint32_t rkey, const ProtectionDomain* pd, const QueuePair* qp,
                            std::uint64_t address, std::uint64_t length,
                            std::uint32_t access) const {
    const Extent* extent = find_remote(rkey, pd, qp, access);
    return extent == nullptr ? nullptr : extent->locate(address, length);
  }
  // The region or window with this rkey, if the peer of `qp` may use it with `access`, or null.
  const Extent* find_remote(std::uint32_t rkey, const ProtectionDomain* pd, const QueuePair* qp,
                            std::uint32_t access) const {
    const Extent* extent = find(rkey, pd, access);
    return extent != nullptr && (extent->qp == nullptr || extent->qp == qp) ? extent : nullptr;
  }

  // Carries out a bind that was posted to `qp`, whose PD is `pd` (clause 10.6.7.2). False: a
  // condition of the bind does not hold, and the window is as before.
  bool bind(const transport::WindowBinding& binding, const ProtectionDomain* pd,
            const QueuePair* qp);
  // Unbinds a window of type 2 that is bound to `qp`. False: the key is not that of such a window.
  bool invalidate(std::uint32_t rkey, const ProtectionDomain* pd, const QueuePair* qp);
  static void unbind(MemoryWindow* window);
  // The window with this handle, or null.
  MemoryWindow* window(std::uint32_t handle) const;

 private:
  const Extent* find(std::uint32_t key, const ProtectionDomain* pd, std::uint32_t access) const {
    const Extent* extent = extents_[key >> 16];
    if (extent == nullptr || extent->key != key || extent->pd != pd) return nullptr;
    return (extent->access & access) == access ? extent : nullptr;
  }

  struct FreeArray {
    void operator()(Extent** array) const;
  };
  std::unique_ptr<Extent*[], FreeArray> extents_;  // zero pages until used
  std::uint32_t regions_ = 0, windows_ = 0;
};

// Checks what ibv_reg_mr must check. 0; EINVAL: the range wraps, or access flags do not exist or
// contradict each other (REMOTE_WRITE and REMOTE_ATOMIC demand LOCAL_WRITE); EOPNOTSUPP:
// kFlushPersistent; EFAULT: part of the range is not mapped, or an end of it cannot be read
// (neither is checked for on-demand regions). *access gets the flags without mere hints, *iova what
// addresses count from: 0 with IBV_ACCESS_ZERO_BASED.
int check_registration(const device::MrInit& init, std::uint32_t* access, std::uint64_t* iova);

}  // namespace ferry::rnic
