#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "port/slot.h"
#include "transport/types.h"

namespace ferry::rnic {

class QueuePair;

// The QPs of an RNIC, by index and in a list. Used under the engine's lock.
class QpTable {
 public:
  static constexpr std::uint32_t kMaxQps = (1u << port::kSlotIndexBits) - port::kReservedIndices;
  static constexpr std::uint32_t kNoIndex = ~0u;

  // `chance`: a random number, from which the first index comes.
  explicit QpTable(std::uint64_t chance);

  // The next index that no QP has; indices go round, so that a freed one is not soon used again.
  // kNoIndex: none is left.
  std::uint32_t free_index();
  bool is_free(std::uint32_t index) const { return by_index_[index] == nullptr; }
  // Enters a QP under a free index.
  void add(QueuePair* qp, std::uint32_t index);
  // False: this index has another QP, or none.
  bool remove(QueuePair* qp, std::uint32_t index);

  QueuePair* operator[](std::uint32_t index) const { return by_index_[index]; }
  const std::vector<QueuePair*>& all() const { return all_; }
  template <typename F>
  void for_each(F&& function) const {
    for (QueuePair* qp : all_) function(*qp);
  }

  // The sums over all QPs, with those that were destroyed.
  transport::Counters counters() const;

 private:
  std::unique_ptr<QueuePair*[]> by_index_;
  std::vector<QueuePair*> all_;
  std::uint32_t next_index_;
  transport::Counters gone_;  // of QPs that were destroyed
};

}  // namespace ferry::rnic
