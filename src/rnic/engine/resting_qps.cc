#include "rnic/engine/resting_qps.h"

#include <algorithm>
#include <utility>

#include "rnic/engine/qp/queue_pair.h"

namespace ferry::rnic {

void RestingQps::begin(const std::vector<QueuePair*>& all) {
  for (Row& row : rows_) {
    for (QueuePair* qp : row.qps) {
      if (qp != nullptr) qp->turn = Turn::kNone;
    }
    row = {};
  }
  restless_ = all;
  unseen_ = all.size();
  known_ = true;
}

bool RestingQps::settle(unsigned count, const Lanes& lanes) {
  for (; count > 0 && unseen_ > 0; --count) {
    QueuePair*& place = restless_[--unseen_];
    QueuePair* qp = place;
    if (!qp->can_rest()) continue;
    const auto lane = lanes.index_of(qp->lane());
    Row& row = rows_[lane];
    row.entries.push_back(qp->transport().stand_in_entry(qp->lane()->port->local().address));
    qp->resting_row = static_cast<std::uint8_t>(lane);
    qp->resting_index = static_cast<std::uint32_t>(row.qps.size());
    row.qps.push_back(qp);
    qp->turn = Turn::kResting;
    place = restless_.back();
    restless_.pop_back();
  }
  return unseen_ > 0;
}

std::vector<RestingQps::Entry> RestingQps::take_entries(std::size_t lane) {
  std::vector<Entry> entries = std::exchange(rows_[lane].entries, {});
  std::erase_if(entries, [](const Entry& entry) { return entry.empty(); });
  return entries;
}

void RestingQps::end() {
  known_ = false;
  restless_.clear();
  next_row_ = next_ = 0;
}

QueuePair* RestingQps::next() {
  for (; next_row_ < rows_.size(); ++next_row_, next_ = 0) {
    const auto& qps = rows_[next_row_].qps;
    while (next_ < qps.size()) {
      if (QueuePair* qp = qps[next_++]; qp != nullptr) return qp;
    }
  }
  rows_ = {};
  return nullptr;
}

void RestingQps::added(QueuePair* qp) {
  if (known_) restless_.push_back(qp);
}

void RestingQps::removed(QueuePair* qp) {
  if (qp->turn == Turn::kResting) return leave(qp);
  const auto at = std::find(restless_.begin(), restless_.end(), qp);
  if (at == restless_.end()) return;
  if (at - restless_.begin() < static_cast<std::ptrdiff_t>(unseen_)) --unseen_;
  restless_.erase(at);
}

void RestingQps::disturbed(QueuePair* qp) {
  leave(qp);
  added(qp);
}

void RestingQps::leave(QueuePair* qp) {
  Row& row = rows_[qp->resting_row];
  row.qps[qp->resting_index] = nullptr;
  if (qp->resting_index < row.entries.size()) row.entries[qp->resting_index].clear();
  qp->turn = Turn::kNone;
}

}  // namespace ferry::rnic
