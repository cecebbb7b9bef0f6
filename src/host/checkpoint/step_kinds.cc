#include "host/checkpoint/step_kinds.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/failure.h"

namespace ferry::host {
namespace {

constexpr std::array kCutKinds{
    std::pair{CourseStep::kLook, v1::CutStep::LOOK},
    std::pair{CourseStep::kCheck, v1::CutStep::CHECK},
    std::pair{CourseStep::kFreeze, v1::CutStep::FREEZE},
    std::pair{CourseStep::kDump, v1::CutStep::DUMP},
    std::pair{CourseStep::kStore, v1::CutStep::STORE},
    std::pair{CourseStep::kEnd, v1::CutStep::END},
};
constexpr std::array kRestartKinds{
    std::pair{CourseStep::kCheck, v1::RestartStep::CHECK},
    std::pair{CourseStep::kRestore, v1::RestartStep::RESTORE},
    std::pair{CourseStep::kGoOn, v1::RestartStep::GO_ON},
};

template <typename Kinds>
auto kind_in(const Kinds& kinds, CourseStep step) {
  const auto found = std::find_if(kinds.begin(), kinds.end(),
                                  [step](const auto& pair) { return pair.first == step; });
  if (found == kinds.end()) throw Failure("a step of another course");
  return found->second;
}

template <typename Kinds, typename Kind>
CourseStep step_in(const Kinds& kinds, Kind kind) {
  const auto found = std::find_if(kinds.begin(), kinds.end(),
                                  [kind](const auto& pair) { return pair.second == kind; });
  if (found == kinds.end()) throw Failure("malformed request");
  return found->first;
}

}  // namespace

v1::CutStep::Kind cut_kind(CourseStep step) {
  return kind_in(kCutKinds, step);
}

v1::RestartStep::Kind restart_kind(CourseStep step) {
  return kind_in(kRestartKinds, step);
}

CourseStep course_step(v1::CutStep::Kind kind) {
  return step_in(kCutKinds, kind);
}

CourseStep course_step(v1::RestartStep::Kind kind) {
  return step_in(kRestartKinds, kind);
}

void need_turn(PartMachine& machine, CourseStep step) {
  switch (machine.comes(step)) {
    case PartMachine::Turn::kNow: return;
    case PartMachine::Turn::kTooEarly: throw Failure("malformed request: a step is missing");
    case PartMachine::Turn::kAgain: throw Failure("malformed request: a step comes twice");
  }
}

}  // namespace ferry::host
