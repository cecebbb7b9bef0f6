#pragma once

#include <cstddef>
#include <cstdint>

#include "host/checkpoint/course/course.h"

namespace ferry::host {

// The side of a host that takes the steps.
class PartMachine {
 public:
  explicit PartMachine(const Course& course) : course_(course) {}

  enum class Turn : std::uint8_t { kNow, kTooEarly, kAgain };
  // Whether it is the turn of a step that the other side asks for. kNow: it is under way, until taken().
  Turn comes(CourseStep step);
  void taken();

  enum class Loss : std::uint8_t {
    kGiveUp,    // what is done is undone, also in the midst of a step
    kAskStore,  // the store says whether the last steps are taken, or what is done is undone
    kNothing,   // all is done, or about to be
  };
  // What to do if the side that leads is lost now.
  Loss when_lost() const;

 private:
  Course course_;
  std::size_t taken_ = 0;
  bool is_under_way_ = false;
};

}  // namespace ferry::host
