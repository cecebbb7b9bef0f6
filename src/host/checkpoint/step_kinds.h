#pragma once

#include "ferry.pb.h"
#include "host/checkpoint/course/part_machine.h"

// The steps of a course as ferryds tell them each other.
namespace ferry::host {

v1::CutStep::Kind cut_kind(CourseStep step);
v1::RestartStep::Kind restart_kind(CourseStep step);
// Throw Failure: it is no step of such a course.
CourseStep course_step(v1::CutStep::Kind kind);
CourseStep course_step(v1::RestartStep::Kind kind);

// The step is under way after that. Throws Failure: it is not its turn.
void need_turn(PartMachine& machine, CourseStep step);

}  // namespace ferry::host
