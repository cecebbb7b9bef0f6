#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "transport/types.h"

namespace ferry::rnic {

// Decides whether the packets of a posted request wait for those of the next ones. A program that
// streams small messages posts them one by one, and a system call for each would cost more than all
// else. So the packets of several requests leave together in one super-packet: with the program's
// next poll, which comes soon in a streaming program, at the latest with the kMost-th request. The
// data of a program that posts and then computes would wait in vain; so nothing is kept until the
// program has come back to the RNIC within kPrompt again and again. Nor is anything kept without an
// acknowledgement on its way, which wakes the progress thread to send it (the rule of Nagle, RFC
// 896).
class PostGatherer {
 public:
  static constexpr transport::Time kPrompt = std::chrono::microseconds(20);
  static constexpr std::uint32_t kStreak = 32;  // calls, each within kPrompt of the last one's end
  static constexpr std::uint32_t kLongestStreak = 4096;
  static constexpr std::uint32_t kMost = 32;    // calls that leave together
  static constexpr std::uint32_t kTrusted = 4;  // flushes by the program that halve needed_

  // The program has posted. True: the packets may wait. `acknowledged`: an acknowledgement is on
  // its way that wakes the progress thread, or that thread looks soon by itself.
  bool keep(transport::Time now, bool acknowledged) {
    // One call in a hundred is late because something else had the processor: this ends no stream.
    streak_ = now - last_call_ <= kPrompt ? std::min(streak_ + 1, kLongestStreak) : streak_ / 2;
    last_call_ = now;
    if (!acknowledged || streak_ < needed_) {
      kept_ = 0;
      return false;
    }
    if (kept_ + 1 >= kMost) {
      came_back();
      return false;
    }
    ++kept_;
    return true;
  }

  // A call of the program ends at `now`; the time that it spent in the kernel does not count as the
  // program's delay.
  void leaves(transport::Time now) { last_call_ = std::max(last_call_, now); }

  // A pass of the engine sends what is kept. A pass that the program did not run, and that finds
  // packets kept, shows that the program did not come back: it takes a longer streak to keep any
  // again.
  void passes(transport::Time now, bool program) {
    if (program) {
      if (kept_ > 0) came_back();
      last_call_ = now;
    } else if (kept_ > 0 && now - last_call_ > kPrompt) {
      streak_ = 0;
      needed_ = std::min(2 * needed_, kLongestStreak);
      trusted_ = 0;
    }
    kept_ = 0;
  }

 private:
  void came_back() {
    kept_ = 0;
    if (++trusted_ < kTrusted) return;
    trusted_ = 0;
    needed_ = std::max(needed_ / 2, kStreak);
  }

  transport::Time last_call_{0};
  std::uint32_t streak_ = 0;
  std::uint32_t needed_ = kStreak;
  std::uint32_t kept_ = 0;
  std::uint32_t trusted_ = 0;
};

}  // namespace ferry::rnic
