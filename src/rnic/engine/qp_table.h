#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "port/slot.h"
#include "transport/types.h"

namespace ferry::rnic {

class QueuePair;

// The QPs of an RNIC, by index and all. Under the engine's lock.
class QpTable {
 public:
  static constexpr std::uint32_t kMaxQps = (1u << port::kSlotIndexBits) - port::kReservedIndices;
  static constexpr std::uint32_t kNoIndex = ~0u;

  // `chance`: where to begin with indices.
  explicit QpTable(std::uint64_t chance);

  // An index that no QP has, in turn, so that a freed one is not soon used again; kNoIndex when
  // none is left.
  std::uint32_t free_index();
  bool is_free(std::uint32_t index) const { return by_index_[index] == nullptr; }
  // Enters a QP under an index that is free.
  void add(QueuePair* qp, std::uint32_t index);
  // False: it is not there.
  bool remove(QueuePair* qp, std::uint32_t index);

  QueuePair* operator[](std::uint32_t index) const { return by_index_[index]; }
  const std::vector<QueuePair*>& all() const { return all_; }
  template <typename F>
  void for_each(F&& function) const {
    for (QueuePair* qp : all_) function(*qp);
  }

  // Of all QPs there have been.
  transport::Counters counters() const;

 private:
  std::unique_ptr<QueuePair*[]> by_index_;
  std::vector<QueuePair*> all_;
  std::uint32_t next_index_;
  transport::Counters gone_;  // of QPs that were destroyed
};

}  // namespace ferry::rnic
