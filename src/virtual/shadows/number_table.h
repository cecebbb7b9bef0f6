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
    const auto other = static_cast<std::uint32_t>(entry);
    if (entry >> 32 == number) return other;
    return entry >> 32 == mark_of(number) ? index_of(other) | variant_of(other + number) : number;
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
    enter(number, std::uint64_t{number} << 32 | other);
  }
  // The same for all keys of the index, whatever their variants: a variant n above that of `key` leads to one
  // n above that of `other`. (Binds give a memory window other variants.)
  void set_index(std::uint32_t key, std::uint32_t other) {
    const std::uint32_t distance = variant_of(other - key);
    enter(key, std::uint64_t{mark_of(key)} << 32 | index_of(other) | distance);
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
  static constexpr std::uint32_t kVariant = 0xFF;
  static constexpr std::size_t kHalf = 4096;  // the values of 12 bits, half of an index
  using Leaf = std::array<std::atomic<std::uint64_t>, kHalf>;

  std::size_t top(std::uint32_t number) const { return (number >> shift_ >> 12) % kHalf; }
  std::size_t low(std::uint32_t number) const { return (number >> shift_) % kHalf; }

  static std::uint32_t index_of(std::uint32_t key) { return key & ~kVariant; }
  static std::uint32_t variant_of(std::uint32_t key) { return key & kVariant; }
  // What an entry for all keys of an index has in the place of its number: no number with that index.
  static std::uint32_t mark_of(std::uint32_t key) { return index_of(~key) | 1; }
  void enter(std::uint32_t number, std::uint64_t entry) {
    std::atomic<Leaf*>& place = leaves_[top(number)];
    Leaf* leaf = place.load(std::memory_order_relaxed);
    if (leaf == nullptr) place.store(leaf = new Leaf{}, std::memory_order_release);
    if (!is_used()) is_used_.store(true, std::memory_order_relaxed);
    (*leaf)[low(number)].store(entry, std::memory_order_relaxed);
  }

  const unsigned shift_;
  std::atomic<bool> is_used_{false};
  // An entry has the number in its upper 32 bits and the other number in the lower ones, or mark_of() and the
  // other index with the distance of the variants; 0: there is none.
  std::array<std::atomic<Leaf*>, kHalf> leaves_{};
};

}  // namespace ferry::virt
