#include "memory.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "failure.h"

namespace stream_check {
namespace {

constexpr size_t kPage = 4096, kWords = kPage / 8;
constexpr size_t kBlockPages = 1024;
constexpr size_t kBlock = kBlockPages * kPage;

uint64_t mix(uint64_t value) {
  value ^= value >> 31;
  value *= 0x9E3779B97F4A7C15ull;
  return value ^ (value >> 29);
}

uint64_t word(size_t block, size_t page, uint32_t version, size_t index) {
  return mix((uint64_t{version} << 32 | (block * kBlockPages + page)) + index * 0x100000001B3ull);
}

std::byte* map(void* where = nullptr) {
  void* memory = ::mmap(where, kBlock, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (where != nullptr ? MAP_FIXED : 0), -1, 0);
  if (memory == MAP_FAILED) throw Failure(std::string("--memory: ") + std::strerror(errno));
  return static_cast<std::byte*>(memory);
}

}  // namespace

Memory::Memory(uint64_t mebibytes, double percent, bool storm) : storm_(storm) {
  blocks_.resize(std::max<size_t>(1, (mebibytes << 20) / kBlock));
  for (size_t block = 0; block < blocks_.size(); ++block) {
    blocks_[block] = {map(), std::vector<uint32_t>(kBlockPages)};
    for (size_t page = 0; page < kBlockPages; ++page) write_page(block, page);
  }
  const double pages = static_cast<double>(blocks_.size() * kBlockPages) * percent / 100;
  if (pages > 0) writer_ = std::thread([this, pages] { run(pages); });
}

Memory::~Memory() {
  ending_ = true;
  if (writer_.joinable()) writer_.join();
  for (const Block& block : blocks_) ::munmap(block.start, kBlock);
}

void Memory::write_page(size_t block, size_t page) {
  const uint32_t version = ++version_;
  auto* words = reinterpret_cast<uint64_t*>(blocks_[block].start + page * kPage);
  for (size_t i = 0; i < kWords; ++i) words[i] = word(block, page, version, i);
  blocks_[block].versions[page] = version;
  ++written_;
}

// The content stays what it has to be.
void Memory::disturb(Block& block) {
  random_ = mix(random_ + 0x632BE59BD9B4E019ull);
  const size_t first = random_ % kBlockPages, count = (random_ >> 16) % (kBlockPages - first) + 1;
  std::byte* const part = block.start + first * kPage;
  switch ((random_ >> 40) % 5) {
    case 0: {  // to another place
      std::byte* const target = map();
      void* moved = ::mremap(block.start, kBlock, kBlock, MREMAP_MAYMOVE | MREMAP_FIXED, target);
      if (moved == MAP_FAILED)
        ::munmap(target, kBlock);  // of one mapping only
      else
        block.start = target;
      break;
    }
    case 1: {  // a copy of it in a mapping that is new
      std::byte* const other = map();
      std::memcpy(other, block.start, kBlock);
      ::munmap(block.start, kBlock);
      block.start = other;
      break;
    }
    case 2:
      ::mprotect(part, count * kPage, (random_ >> 50) % 2 == 0 ? PROT_READ : PROT_NONE);
      ::mprotect(part, count * kPage, PROT_READ | PROT_WRITE);
      break;
    case 3:
      ::madvise(part, std::min<size_t>(count, 16) * kPage, MADV_DONTNEED);
      std::fill_n(block.versions.begin() + static_cast<std::ptrdiff_t>(first),
                  std::min<size_t>(count, 16), 0u);
      break;
    default: ::madvise(block.start, kBlock, MADV_HUGEPAGE); break;
  }
}

void Memory::run(double pages_per_second) {
  constexpr long kTickNs = 10'000'000;
  double due = 0;
  while (!ending_) {
    const timespec tick{0, kTickNs};
    ::nanosleep(&tick, nullptr);
    for (due += pages_per_second * 0.01; due >= 1 && !ending_; due -= 1) {
      random_ = mix(random_ + 0x632BE59BD9B4E019ull);
      write_page(random_ % blocks_.size(), (random_ >> 32) % kBlockPages);
    }
    if (storm_) disturb(blocks_[mix(random_) % blocks_.size()]);
  }
}

uint64_t Memory::count_corrupted() {
  ending_ = true;
  if (writer_.joinable()) writer_.join();
  uint64_t corrupted = 0;
  for (size_t block = 0; block < blocks_.size(); ++block) {
    for (size_t page = 0; page < kBlockPages; ++page) {
      const uint32_t version = blocks_[block].versions[page];
      const auto* words = reinterpret_cast<const uint64_t*>(blocks_[block].start + page * kPage);
      bool good = true;
      for (size_t i = 0; i < kWords; ++i) {
        good = good && words[i] == (version == 0 ? 0 : word(block, page, version, i));
      }
      corrupted += good ? 0 : 1;
    }
  }
  return corrupted;
}

}  // namespace stream_check
