#pragma once

#include <algorithm>
#include <chrono>

namespace ferry::host {

// How long a program may stand still: from the start of its dump to the record of the commit.
class Standstill {
 public:
  using Clock = std::chrono::steady_clock;
  using milliseconds = std::chrono::milliseconds;

  void begin(milliseconds limit) { end_ = Clock::now() + limit; }

  // At least 1 ms, so that it can be the limit of a call.
  milliseconds left() const {
    return std::max(std::chrono::duration_cast<milliseconds>(end_ - Clock::now()), milliseconds(1));
  }
  // How long the destination may take to answer a call that may take `left`.
  static milliseconds until_answer(milliseconds left) {
    constexpr milliseconds kAnswerTime{500};  // for the answer to be on its way
    return std::max(left - kAnswerTime, milliseconds(1));
  }

 private:
  Clock::time_point end_;
};

}  // namespace ferry::host
