#pragma once

#include <atomic>
#include <cstdint>

namespace ferry::pipe {

// A token bucket, kept as the time at which all would have been sent at exactly the rate (the generic cell rate
// algorithm). In any time no more is sent than the rate gives in that time and in kBurst, and the pieces that were
// begun. Times are in nanoseconds. Any thread may call.
class RateLimit {
 public:
  static constexpr std::uint64_t kBurst = 10'000'000;

  // How long nothing may be sent from now on. 0: something may.
  std::uint64_t wait(std::uint64_t now) const {
    const std::uint64_t until = sent_until_.load(std::memory_order_relaxed);
    return until > now + kBurst ? until - now - kBurst : 0;
  }
  void spend(std::uint32_t bytes, std::uint64_t rate, std::uint64_t now);
  // As if nothing had been sent.
  void reset() { sent_until_.store(0, std::memory_order_relaxed); }

  // How much may be sent at once, of what an engine takes.
  static std::uint32_t piece(std::uint64_t rate, std::uint32_t longest);

 private:
  std::atomic<std::uint64_t> sent_until_{0};
};

}  // namespace ferry::pipe
