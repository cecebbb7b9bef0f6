#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

// How a checkpoint of programs on several hosts is taken, and how they are restarted: one ferryd leads, and tells all
// hosts one step after the other. None takes a step before all have taken the one before. Both sides are state
// machines without I/O, clock or locks (lead_machine.h, part_machine.h); ferryd and the simulation of whole checkpoints
// run the same code.
namespace ferry::host {

enum class CourseStep : std::uint8_t {
  kLook,  // at the programs, and at the place of their images
  kCheck,  // nothing is in the way of the stop; memory is copied ahead. In a restart: nothing is in its way
  kFreeze,   // all programs stand still, and none is dumped
  kDump,     // their images are complete, in memory
  kStore,    // and written into the checkpoint
  kEnd,      // the programs go on, or end if they are to
  kRestore,  // all programs are restored, and stand still
  kGoOn,     // they go on
};

// Steps in their order. Between two of them, or after the last one, the store decides what becomes of all programs
// (store/verdict.h): until then a failure at one host undoes what all have done, and after it nothing does.
struct Course {
  std::span<const CourseStep> steps;
  std::size_t decision;  // steps before it
};

namespace course_steps {
using enum CourseStep;
inline constexpr std::array kCheckpoint{kLook, kCheck, kFreeze, kDump, kEnd, kStore};
inline constexpr std::array kStop{kLook, kCheck, kFreeze, kDump, kStore, kEnd};
inline constexpr std::array kRestart{kCheck, kRestore, kGoOn};
}  // namespace course_steps

// Of a checkpoint after which the programs go on, of one with which they end (--stop), and of a restart.
inline constexpr Course kCheckpointCourse{course_steps::kCheckpoint, 6};
inline constexpr Course kStopCourse{course_steps::kStop, 5};
inline constexpr Course kRestartCourse{course_steps::kRestart, 2};

}  // namespace ferry::host
