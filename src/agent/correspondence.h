#pragma once

#include <chrono>
#include <cstdint>

#include "agent/protocol.h"
#include "agent/registry.h"

namespace ferry::agent {

// What contexts over devices of the kernel tell their peers around a move: their letters, and the
// suspension of peers before a stop. Only the agent's thread calls it.
class Correspondence {
 public:
  // `registry` lives as long as this object.
  explicit Correspondence(Registry& registry) : registry_(registry) {}

  // The first call for a move asks the peers; true: all are suspended.
  bool suspend(const Suspend& request);
  // Lets the peers go on, unless a stop has begun since.
  void release();
  // A stop has begun: contexts release their peers themselves, when they go on.
  void stop_begins() { suspended_for_ = 0; }

  Delivered deliver(const Letters& letters);
  // Lets contexts go on with what peers have asked for, and takes the letters that the contexts have written. False:
  // there are no letters.
  bool tend(Letters* out);
  // Another ferryd carries letters from now on: contexts repeat those that may be lost.
  void begin_anew();
  // When tend() is to be called at the latest, in ms; -1: there is no hurry.
  int hurry() const;

 private:
  using Clock = std::chrono::steady_clock;

  Registry& registry_;
  std::uint64_t suspended_for_ = 0;  // id of the move; 0: none
  Clock::time_point released_at_, repeated_at_ = Clock::now();
  bool is_under_way_ = false;  // progress() of some context has more to do
  bool is_waiting_ = false;    // some context awaits letters
};

}  // namespace ferry::agent
