#include "rnic/engine/qp_table.h"

#include "rnic/engine/qp/queue_pair.h"

namespace ferry::rnic {

QpTable::QpTable(std::uint64_t chance)
    : by_index_(new QueuePair* [1u << port::kSlotIndexBits] {}),
      next_index_(static_cast<std::uint32_t>(chance) & port::kSlotIndexMask) {}

std::uint32_t QpTable::free_index() {
  if (all_.size() >= kMaxQps) return kNoIndex;
  for (;;) {
    const std::uint32_t index = next_index_;
    next_index_ = (next_index_ + 1) & port::kSlotIndexMask;
    // These indices are reserved in slot 0 only, but a QP keeps its index wherever it moves.
    if (index >= port::kReservedIndices && is_free(index)) return index;
  }
}

void QpTable::add(QueuePair* qp, std::uint32_t index) {
  all_.push_back(qp);
  by_index_[index] = qp;
}

bool QpTable::remove(QueuePair* qp, std::uint32_t index) {
  if (by_index_[index] != qp) return false;
  gone_ += qp->transport().status().counters;
  by_index_[index] = nullptr;
  std::erase(all_, qp);
  return true;
}

transport::Counters QpTable::counters() const {
  transport::Counters sum = gone_;
  for (QueuePair* qp : all_) sum += qp->transport().status().counters;
  return sum;
}

}  // namespace ferry::rnic
