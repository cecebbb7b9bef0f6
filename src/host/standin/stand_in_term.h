#pragma once

#include <chrono>
#include <optional>

#include "base/limits.h"

// How long the stand-ins of a program that has moved are kept. Without I/O and clock: times are any
// monotonic ones.
namespace ferry::host {

class StandInTerm {
 public:
  using Time = std::chrono::nanoseconds;

  // `most`: the longest term, for a program that reports for ever that some peer does not know the new place. It is
  // longer than every peer's Paused limit.
  explicit StandInTerm(Time committed, Time most = Limits().stand_in) : most_(committed + most) {}

  // Nobody is left who would report that peers know: the program has ended, or has moved on, which looks the same from
  // here. A peer that moves at the same time may know only this old place, and asks here until its Paused limit is
  // over. `paused`: the longest Paused limit of all peers.
  void program_left(Time now, Time paused) {
    const Time limit = now + paused;
    if (limit < most_) most_ = limit;
  }

  // `expired`: no stand-in waits for a peer any more.
  bool over(bool expired, Time now) const { return expired || now >= most_; }

 private:
  Time most_;
};

}  // namespace ferry::host
