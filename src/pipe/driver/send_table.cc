#include "pipe/driver/send_table.h"

#include <iterator>

namespace ferry::pipe {

int SendTable::allocate(std::size_t size) {
  if (size == 0 || size > ring_size_) return -1;
  size = (size + kAlignment - 1) / kAlignment * kAlignment;
  std::uint64_t gap = 0;
  for (const auto& [offset, index] : by_offset_) {
    if (offset - gap >= size) break;
    gap = offset + blocks_[index].size;
  }
  // Gaps between blocks end where the next begins, the last one with the ring.
  if (gap + size > ring_size_) return -1;
  if (unused_.empty()) {
    if (blocks_.size() == kMostBlocks) return -1;
    unused_.push_back(static_cast<std::uint32_t>(blocks_.size()));
    blocks_.emplace_back();
  }
  const std::uint32_t index = unused_.back();
  unused_.pop_back();
  blocks_[index] = {gap, size, 0, true, false};
  by_offset_[gap] = index;
  total_ += size;
  return static_cast<int>(index);
}

bool SendTable::restore(std::uint32_t index, std::uint64_t offset, std::uint64_t size) {
  if (index >= kMostBlocks || size == 0 || size > ring_size_ || offset % kAlignment != 0)
    return false;
  size = (size + kAlignment - 1) / kAlignment * kAlignment;
  if (offset > ring_size_ - size) return false;
  const auto next = by_offset_.lower_bound(offset);
  if (next != by_offset_.end() && next->first < offset + size) return false;
  if (next != by_offset_.begin()) {
    const auto& [before, other] = *std::prev(next);
    if (before + blocks_[other].size > offset) return false;
  }
  if (index < blocks_.size() && blocks_[index].used) return false;
  while (blocks_.size() <= index) {
    unused_.push_back(static_cast<std::uint32_t>(blocks_.size()));
    blocks_.emplace_back();
  }
  std::erase(unused_, index);
  blocks_[index] = {offset, size, 0, true, false};
  by_offset_[offset] = index;
  total_ += size;
  return true;
}

bool SendTable::free(std::uint32_t index) {
  if (index >= blocks_.size() || !blocks_[index].used || blocks_[index].freed) return false;
  blocks_[index].freed = true;
  if (blocks_[index].sends == 0) give_back(index);
  return true;
}

bool SendTable::begin(std::uint32_t index, std::uint64_t offset, std::uint64_t length) {
  if (index >= blocks_.size()) return false;
  Block& block = blocks_[index];
  if (!block.used || block.freed || offset < block.offset || length > block.size ||
      offset - block.offset > block.size - length) {
    return false;
  }
  ++block.sends;
  return true;
}

void SendTable::end(std::uint32_t index) {
  Block& block = blocks_[index];
  if (--block.sends == 0 && block.freed) give_back(index);
}

void SendTable::give_back(std::uint32_t index) {
  Block& block = blocks_[index];
  by_offset_.erase(block.offset);
  total_ -= block.size;
  block = {};
  unused_.push_back(index);
}

}  // namespace ferry::pipe
