#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/types.h"

namespace ferry::rnic {

// A program that answers each message of its peer as soon as it has seen it (a server of small
// requests, a ping-pong) sends two packets for one: the acknowledgement and the answer. When a QP
// has done so again and again, its acknowledgement is held for the answer, behind which it leaves
// in the same system call; the peer takes both with one, too. It is held for kPrompt of the
// program's polls, at the latest until the progress thread looks.
class ReplyHabit {
 public:
  static constexpr transport::Time kPrompt = std::chrono::microseconds(20);
  static constexpr std::uint8_t kHabit = 32;  // prompt answers in a row

  // An acknowledgement is due, and nothing else. True: it may be held.
  bool asked(transport::Time now) {
    if (asked_at_ == kNotAsked) asked_at_ = now;
    if (now - asked_at_ > kPrompt) {
      answers_ = 0;
      asked_at_ = now;
    }
    return answers_ >= kHabit;
  }

  // The program has posted a request.
  void posted(transport::Time now) {
    if (asked_at_ == kNotAsked) return;
    answers_ = now - asked_at_ <= kPrompt ? std::min<std::uint8_t>(answers_ + 1, kHabit) : 0;
    asked_at_ = kNotAsked;
  }

 private:
  static constexpr transport::Time kNotAsked{0};
  transport::Time asked_at_ = kNotAsked;
  std::uint8_t answers_ = 0;
};

}  // namespace ferry::rnic
