#include "rnic/memory/memory.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "transport/types.h"

namespace ferry::rnic {

static_assert(int{transport::kLocalWrite} == int{IBV_ACCESS_LOCAL_WRITE});
static_assert(int{transport::kRemoteWrite} == int{IBV_ACCESS_REMOTE_WRITE});
static_assert(int{transport::kRemoteRead} == int{IBV_ACCESS_REMOTE_READ});
static_assert(int{transport::kRemoteAtomic} == int{IBV_ACCESS_REMOTE_ATOMIC});

void MemoryTable::FreeArray::operator()(Extent** array) const {
  std::free(array);
}

MemoryTable::MemoryTable() : extents_(static_cast<Extent**>(std::calloc(kSlots, sizeof(Extent*)))) {
  if (extents_ == nullptr) throw std::bad_alloc();
}

std::byte* MemoryTable::nowhere() {
  static std::byte sentinel;
  return &sentinel;
}

bool MemoryTable::insert(Extent* extent, std::uint64_t random) {
  if (extent->is_window ? windows_ >= kMaxWindows : regions_ >= kMaxRegions) return false;
  auto index = static_cast<std::uint32_t>(random >> 16) % kSlots;
  while (extents_[index] != nullptr) index = (index + 1) % kSlots;
  return insert_with_key(extent, index << 16 | static_cast<std::uint32_t>(random & 0xFFFF));
}

bool MemoryTable::insert_with_key(Extent* extent, std::uint32_t key) {
  if (extents_[key >> 16] != nullptr) return false;
  extent->key = key;
  extents_[key >> 16] = extent;
  ++(extent->is_window ? windows_ : regions_);
  return true;
}

void MemoryTable::remove(Extent* extent) {
  Extent*& slot = extents_[extent->key >> 16];
  if (slot != extent) return;
  slot = nullptr;
  --(extent->is_window ? windows_ : regions_);
}

namespace {

// mincore() fails with ENOMEM where nothing is mapped, and touches no page.
bool is_mapped(std::uintptr_t begin, std::uintptr_t end, std::size_t page) {
  std::array<unsigned char, 16384> residency;
  begin &= ~(page - 1);
  end = (end + page - 1) & ~(page - 1);
  while (begin < end) {
    const std::size_t length = std::min(end - begin, residency.size() * page);
    if (mincore(reinterpret_cast<void*>(begin), length, residency.data()) != 0) return false;
    begin += length;
  }
  return true;
}

bool is_readable(std::uintptr_t address) {
  char byte;
  iovec ours{&byte, 1};
  iovec theirs{reinterpret_cast<void*>(address), 1};
  return process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0) == 1;
}

}  // namespace

int check_registration(const device::MrInit& init, std::uint32_t* access, std::uint64_t* iova) {
  constexpr unsigned kCounting = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                 IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND |
                                 kFlushGlobal;
  // These are hints, which mean nothing here.
  constexpr unsigned kHints = unsigned{IBV_ACCESS_HUGETLB} | unsigned{IBV_ACCESS_OPTIONAL_RANGE};
  if ((init.access & kFlushPersistent) != 0) return EOPNOTSUPP;
  if ((init.access & ~(kCounting | kHints)) != 0) return EINVAL;
  if ((init.access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 &&
      (init.access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    return EINVAL;
  }
  *access = init.access & kCounting;
  *iova = (init.access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : init.iova;

  const auto begin = reinterpret_cast<std::uintptr_t>(init.address);
  const std::uintptr_t end = begin + init.length;
  if (end < begin || *iova + init.length < *iova) return EINVAL;
  // All copies of this RNIC work on demand. IBV_ACCESS_ON_DEMAND says that the range need not be
  // mapped now.
  if (init.length == 0 || (init.access & IBV_ACCESS_ON_DEMAND) != 0) return 0;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (end > ~std::uintptr_t{0} - page) return EINVAL;
  if (!is_mapped(begin, end, page)) return EFAULT;
  // mincore() does not show PROT_NONE. So both ends are read, which brings in two pages at most.
  if (!is_readable(begin) || !is_readable(end - 1)) return EFAULT;
  return 0;
}

}  // namespace ferry::rnic
