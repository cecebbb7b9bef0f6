#include "steps.h"

#include <algorithm>

namespace atomic_check {

Judgement judge(uint64_t counter, const std::vector<Found>& found) {
  Judgement result;
  Found all;
  for (const Found& values : found) {
    all.insert(all.end(), values.begin(), values.end());
    for (size_t i = 1; i < values.size(); ++i) result.disordered += values[i] <= values[i - 1];
  }
  result.steps = all.size();
  std::sort(all.begin(), all.end());
  const auto unique = std::unique(all.begin(), all.end());
  const auto beyond = std::lower_bound(all.begin(), unique, counter);
  result.doubled = static_cast<uint64_t>(all.end() - unique);
  result.beyond = static_cast<uint64_t>(unique - beyond);
  result.missing = counter - static_cast<uint64_t>(beyond - all.begin());
  return result;
}

}  // namespace atomic_check
