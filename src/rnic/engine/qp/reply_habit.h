#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/types.h"

namespace ferry::rnic {

// A program that answers each message of its peer as soon as it has seen it (a server of small
// requests, a ping-pong) sends two packets for one: the acknowledgement and the answer. When a QP
// has done so again and again, its acknowledgement is held for the answer, behind which it leaves
// in the same system call; the peer takes both with one, too. It is held for kPrompt, and if nobody
// polls then until the progress thread looks.
//
// To a program that waits for data in its memory, and polls for the completion of its answer only,
// the next request then comes together with that completion, and so while it polls: else the
// progress thread would have to be woken for each.
class ReplyHabit {
 public:
  static constexpr transport::Time kPrompt = std::chrono::microseconds(100);
  static constexpr std::uint8_t kHabit = 32;  // prompt answers
  static constexpr std::uint8_t kMost = 64;   // that count

  // An acknowledgement is due, and nothing else. True: it may be held.
  bool asked(transport::Time now) {
    if (asked_at_ == kNotAsked) asked_at_ = now;
    if (now - asked_at_ >= kPrompt) {
      late();
      asked_at_ = now;
      return false;
    }
    return answers_ >= kHabit;
  }

  // When an acknowledgement that is held must leave.
  transport::Time until() const { return asked_at_ + kPrompt; }

  // The program has posted a request.
  void posted(transport::Time now) {
    if (asked_at_ == kNotAsked) return;
    if (now - asked_at_ < kPrompt) {
      answers_ = std::min<std::uint8_t>(answers_ + 1, kMost);
    } else {
      late();
    }
    asked_at_ = kNotAsked;
  }

 private:
  // Something else had the processor, or the program has ceased to answer: three in a row tell.
  void late() { answers_ -= answers_ / 4; }

  static constexpr transport::Time kNotAsked{0};
  transport::Time asked_at_ = kNotAsked;
  std::uint8_t answers_ = 0;
};

}  // namespace ferry::rnic
