#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "transport/types.h"

namespace ferry::rnic {

// Holds a QP's requests to a rate (ibv_modify_qp_rate_limit(3)): the virtual scheduling algorithm
// of ATM's GCRA (ITU-T I.371, annex A), over the bytes of packets from BTH to ICRC.
class Pacer {
 public:
  static constexpr std::uint32_t kMaxRate = 100'000'000;  // kbit/s

  // `rate`: kbit/s; 0: no limit. `burst`: how many bytes beyond one packet may leave at once; 0:
  // what the rate gives in a millisecond, so that a thread that sleeps in between keeps up.
  void set(std::uint32_t rate, std::uint32_t burst) {
    rate_ = rate;
    burst_ = burst;
    next_ = {};
    waits_until_ = transport::kNever;
  }
  std::uint32_t rate() const { return rate_; }
  std::uint32_t burst() const { return burst_; }

  // Whether a packet may leave now; if not, waits_until() tells when it may.
  bool ready(transport::Time now) {
    const transport::Time tolerance =
        burst_ > 0 ? time_of(burst_) : transport::Time(std::chrono::milliseconds(1));
    waits_until_ = rate_ > 0 && next_ - tolerance > now ? next_ - tolerance : transport::kNever;
    return waits_until_ == transport::kNever;
  }
  // A packet has left.
  void charge(transport::Time now, std::size_t bytes) {
    if (rate_ > 0) next_ = std::max(next_, now) + time_of(bytes);
  }
  transport::Time waits_until() const { return waits_until_; }
  // The time waits_until() has come: a QP that still has something to send asks ready() again.
  void wake() { waits_until_ = transport::kNever; }

 private:
  transport::Time time_of(std::size_t bytes) const {
    return transport::Time(static_cast<std::int64_t>(bytes * 8'000'000 / rate_));
  }

  std::uint32_t rate_ = 0, burst_ = 0;
  transport::Time next_{};  // when the rate allows the next packet
  transport::Time waits_until_ = transport::kNever;
};

}  // namespace ferry::rnic
