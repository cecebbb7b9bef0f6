#include "pipe/policy/rate_limit.h"

#include <algorithm>

namespace ferry::pipe {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kShortest = 4096;

}  // namespace

void RateLimit::spend(std::uint32_t bytes, std::uint64_t rate, std::uint64_t now) {
  const std::uint64_t takes = (bytes * kSecond + rate - 1) / rate;
  std::uint64_t until = sent_until_.load(std::memory_order_relaxed);
  while (!sent_until_.compare_exchange_weak(until, std::max(until, now) + takes,
                                            std::memory_order_relaxed)) {
  }
}

std::uint32_t RateLimit::piece(std::uint64_t rate, std::uint32_t longest) {
  const std::uint64_t burst = std::max(kShortest, rate / (kSecond / kBurst));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(burst, longest));
}

}  // namespace ferry::pipe
