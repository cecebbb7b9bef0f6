#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ferry::virt {

// After a move the device behind has other keys and QPNs than the application knows; this table leads
// from one number to the other. A number that is not in the table stays as it is. The table has two
// levels of arrays: a lookup costs two loads, whatever the number of entries. Any thread may look up at
// any time. One thread at a time adds entries; any thread may change an entry that exists.
class NumberTable {
 public:
  // The index of a number is its 24 bits above the lowest `shift` bits. `shift` is 0 for QPNs, and 8 for
  // keys, whose lowest 8 bits are the variant. The table has at most one number of each index.
  explicit NumberTable(unsigned shift) : shift_(shift) {}
  ~NumberTable() {
    for (auto& leaf : leaves_) delete leaf.load(std::memory_order_relaxed);
  }
  NumberTable(const NumberTable&) = delete;
  NumberTable& operator=(const NumberTable&) = delete;

  std::uint32_t operator[](std::uint32_t number) const {
    const Leaf* leaf = leaves_[top(number)].load(std::memory_order_acquire);
    if (leaf == nullptr) return number;
    const std::uint64_t entry = (*leaf)[low(number)].load(std::memory_order_relaxed);
    return entry >> 32 == number ? static_cast<std::uint32_t>(entry) : number;
  }
  // Whether a number with the same index is in the table.
  bool has_index_of(std::uint32_t number) const {
    const Leaf* leaf = leaves_[top(number)].load(std::memory_order_acquire);
    return leaf != nullptr && (*leaf)[low(number)].load(std::memory_order_relaxed) != 0;
  }
  // Whether the table has got an entry since the last clear(). Is not called while the first one is set.
  bool is_used() const { return is_used_.load(std::memory_order_relaxed); }
  // Throws std::bad_alloc. Replaces the entry of the same index.
  void set(std::uint32_t number, std::uint32_t other) {
    std::atomic<Leaf*>& place = leaves_[top(number)];
    Leaf* leaf = place.load(std::memory_order_relaxed);
    if (leaf == nullptr) place.store(leaf = new Leaf{}, std::memory_order_release);
    if (!is_used()) is_used_.store(true, std::memory_order_relaxed);
    std::atomic<std::uint64_t>& entry = (*leaf)[low(number)];
    entry.store(std::uint64_t{number} << 32 | other, std::memory_order_relaxed);
  }
  void erase(std::uint32_t number) {
    if (Leaf* leaf = leaves_[top(number)].load(std::memory_order_relaxed))
      (*leaf)[low(number)].store(0, std::memory_order_relaxed);
  }
  void clear() {
    is_used_.store(false, std::memory_order_relaxed);
    for (auto& place : leaves_) {
      Leaf* leaf = place.load(std::memory_order_relaxed);
      if (leaf == nullptr) continue;
      for (auto& entry : *leaf) entry.store(0, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::size_t kHalf = 4096;  // the values of 12 bits, half of an index
  using Leaf = std::array<std::atomic<std::uint64_t>, kHalf>;

  std::size_t top(std::uint32_t number) const { return (number >> shift_ >> 12) % kHalf; }
  std::size_t low(std::uint32_t number) const { return (number >> shift_) % kHalf; }

  const unsigned shift_;
  std::atomic<bool> is_used_{false};
  // An entry has the number in its upper 32 bits and the other number in the lower ones; 0: there is none.
  std::array<std::atomic<Leaf*>, kHalf> leaves_{};
};

}  // namespace ferry::virt
