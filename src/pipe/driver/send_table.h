#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace ferry::pipe {

// The SBT: which blocks of a send ring the program has, and which sends use them (figure 5).
class SendTable {
 public:
  static constexpr std::size_t kMostBlocks = 65536;  // what an entry's `sequence` can name
  static constexpr std::size_t kAlignment = 64;

  struct Block {
    std::uint64_t offset = 0, size = 0;
    std::uint32_t sends = 0;  // that are not done
    bool used = false, freed = false;
  };

  explicit SendTable(std::size_t ring_size = 0) : ring_size_(ring_size) {}

  // The lowest gap that is large enough. -1: there is none. What it gives is an index for block().
  int allocate(std::size_t size);
  // The very block that the program had by another driver. False: it cannot be, or part of it is another block's.
  bool restore(std::uint32_t index, std::uint64_t offset, std::uint64_t size);
  // False: there is no such block. One that sends still use is given back when they are done.
  bool free(std::uint32_t index);

  // A send uses `length` bytes from `offset`. False: they are not all of this block's.
  bool begin(std::uint32_t index, std::uint64_t offset, std::uint64_t length);
  void end(std::uint32_t index);

  const Block& block(std::uint32_t index) const { return blocks_[index]; }
  std::size_t total() const { return total_; }

 private:
  void give_back(std::uint32_t index);

  std::size_t ring_size_;
  std::size_t total_ = 0;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> unused_;                 // indices in blocks_
  std::map<std::uint64_t, std::uint32_t> by_offset_;  // of the blocks in use
};

}  // namespace ferry::pipe
