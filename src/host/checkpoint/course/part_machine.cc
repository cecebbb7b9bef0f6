#include "host/checkpoint/course/part_machine.h"

#include <algorithm>

namespace ferry::host {

PartMachine::Turn PartMachine::comes(CourseStep step) {
  const auto& steps = course_.steps;
  if (taken_ < steps.size() && steps[taken_] == step) {
    is_under_way_ = true;
    return Turn::kNow;
  }
  const auto before = steps.first(taken_);
  return std::find(before.begin(), before.end(), step) == before.end() ? Turn::kTooEarly
                                                                       : Turn::kAgain;
}

void PartMachine::taken() {
  is_under_way_ = false;
  ++taken_;
}

// A step that comes after the decision says what that is.
PartMachine::Loss PartMachine::when_lost() const {
  if (taken_ < course_.decision) return Loss::kGiveUp;
  if (is_under_way_ || taken_ == course_.steps.size()) return Loss::kNothing;
  return taken_ == course_.decision ? Loss::kAskStore : Loss::kNothing;
}

}  // namespace ferry::host
