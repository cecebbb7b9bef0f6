#include "pipe/library/mapping.h"

#include <sys/mman.h>

#include <cstdint>

namespace ferry::pd {
namespace {

constexpr std::size_t kHugePage = 2 << 20;

}  // namespace

Mapping::Mapping(int memory, std::size_t size, int copies) {
  const std::size_t wanted = size * static_cast<std::size_t>(copies);
  // Huge pages are mapped where an address is a multiple of theirs.
  void* place = ::mmap(nullptr, wanted + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return;
  const auto start = reinterpret_cast<std::uintptr_t>(place);
  const std::uintptr_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned != start) ::munmap(place, aligned - start);
  auto* base = reinterpret_cast<std::byte*>(aligned);
  const std::size_t rest = start + kHugePage - aligned;
  if (rest != 0) ::munmap(base + wanted, rest);
  for (int copy = 0; copy < copies; ++copy) {
    if (::mmap(base + static_cast<std::size_t>(copy) * size, size, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_FIXED, memory, 0) == MAP_FAILED) {
      ::munmap(base, wanted);
      return;
    }
  }
  ::madvise(base, wanted, MADV_DONTFORK);
  base_ = base;
  size_ = size;
  mapped_ = wanted;
}

Mapping::~Mapping() {
  if (base_ != nullptr) ::munmap(base_, mapped_);
}

}  // namespace ferry::pd
