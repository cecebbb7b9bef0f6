#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/types.h"

namespace ferry::rnic {

// A program that answers each message of its peer as soon as it has seen it (a server of small
// requests, a ping-pong) sends two packets for each that it gets: the acknowledgement and the
// answer. When the program has done so again and again on a QP, the acknowledgement is held for the
// answer, and leaves behind it in the same system call; the peer receives both in one system call,
// too. The acknowledgement is held for kPrompt; if nobody polls by then, until the progress thread
// looks.
//
// This helps also a program that waits for requests in its memory, and polls only for the
// completion of its answer: the peer's acknowledgement, which completes the answer, comes together
// with the next request, and so while the program polls. Else the progress thread would be woken
// for each request.
class ReplyHabit {
 public:
  static constexpr transport::Time kPrompt = std::chrono::microseconds(100);
  static constexpr std::uint8_t kHabit = 32;  // prompt answers that make a habit
  static constexpr std::uint8_t kMost = 64;   // prompt answers that are counted

  // The QP has an acknowledgement to send, and nothing else. True: it may be held.
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
  // An answer is late. Something else had the processor, or the program has ceased to answer: three
  // late answers in a row end even the longest habit.
  void late() { answers_ -= answers_ / 4; }

  static constexpr transport::Time kNotAsked{0};
  transport::Time asked_at_ = kNotAsked;
  std::uint8_t answers_ = 0;
};

}  // namespace ferry::rnic
