#include "ledger.h"

#include <algorithm>

namespace datagram_check {
namespace {

constexpr uint64_t kMaxSequences = 1 << 20;  // what the side channel can carry

}  // namespace

void Arrivals::add(uint64_t sequence) {
  if (sequence >= kMaxSequences) return;
  if (sequence >= counts_.size()) counts_.resize(sequence + 1);
  received_ += counts_[sequence] == 0 ? 1 : 0;
  counts_[sequence] = static_cast<uint8_t>(std::min(counts_[sequence] + 1, 255));
}

Judgement judge(const std::vector<Sending>& sendings, const std::vector<uint8_t>& counts,
                uint64_t join) {
  Judgement result;
  result.sent = sendings.size();
  for (uint64_t i = 0; i < sendings.size(); ++i) {
    const unsigned count = i < counts.size() ? counts[i] : 0;
    if (count > 0) {
      ++result.received;
      result.duplicated += count - 1;
      continue;
    }
    ++result.lost;
    if (result.ranges.empty() || i > result.ranges.back().last + 1 + join) {
      result.ranges.push_back({i, i, sendings[i].ended_ns, 0});
    }
    result.ranges.back().last = i;
    result.ranges.back().last_sent_ns = sendings[i].began_ns;
  }
  for (uint64_t i = sendings.size(); i < counts.size(); ++i) result.unsent += counts[i];
  return result;
}

}  // namespace datagram_check
