#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "host/checkpoint/course/lead_machine.h"
#include "host/checkpoint/course/part_machine.h"

namespace ferry::host {
namespace {

using Action = LeadMachine::Action;
using Turn = PartMachine::Turn;
using Loss = PartMachine::Loss;

// Both hosts take the step that is told.
void take(LeadMachine& lead, CourseStep step) {
  ASSERT_EQ(lead.next(), Action::kTell);
  ASSERT_EQ(lead.step(), step);
  lead.answered(0);
  EXPECT_EQ(lead.next(), Action::kNone);  // until the other one has taken it too
  EXPECT_FALSE(lead.is_taken());
  lead.answered(1);
  EXPECT_TRUE(lead.is_taken());
}
void take_until(LeadMachine& lead, const Course& course, CourseStep last) {
  for (const auto step : course.steps) {
    take(lead, step);
    if (step == last) return;
  }
}

TEST(LeadMachine, TellsAStepWhenAllHaveTakenTheOneBefore) {
  LeadMachine lead(kCheckpointCourse, 2);
  take_until(lead, kCheckpointCourse, CourseStep::kStore);
  EXPECT_EQ(lead.next(), Action::kDecide);
  EXPECT_EQ(lead.next(), Action::kNone);
  lead.decided(true);
  EXPECT_EQ(lead.next(), Action::kOver);
  EXPECT_TRUE(lead.is_decided());
}

TEST(LeadMachine, DecidesBeforeProgramsEnd) {
  LeadMachine lead(kStopCourse, 2);
  take_until(lead, kStopCourse, CourseStep::kStore);
  EXPECT_EQ(lead.next(), Action::kDecide);
  lead.decided(true);
  take(lead, CourseStep::kEnd);
  EXPECT_EQ(lead.next(), Action::kOver);
}

TEST(LeadMachine, AFailureBeforeTheDecisionGivesAllUp) {
  LeadMachine lead(kRestartCourse, 2);
  take(lead, CourseStep::kCheck);
  EXPECT_EQ(lead.next(), Action::kTell);
  lead.failed(1);
  EXPECT_EQ(lead.next(), Action::kGiveUp);
  EXPECT_EQ(lead.next(), Action::kNone);
  EXPECT_TRUE(lead.awaits(0));
  lead.answered(0);  // it was about to
  EXPECT_EQ(lead.next(), Action::kOver);
  EXPECT_FALSE(lead.is_decided());
  EXPECT_EQ(lead.step(), CourseStep::kRestore);
}

TEST(LeadMachine, AFailureAfterItKeepsNobodyFromBeingTold) {
  LeadMachine lead(kStopCourse, 3);
  for (std::size_t i = 0; i < kStopCourse.decision; ++i) {
    ASSERT_EQ(lead.next(), Action::kTell);
    for (const std::size_t host : {0, 1, 2}) lead.answered(host);
  }
  ASSERT_EQ(lead.next(), Action::kDecide);
  lead.decided(true);
  ASSERT_EQ(lead.next(), Action::kTell);
  lead.failed(0);
  EXPECT_EQ(lead.next(), Action::kNone);
  lead.failed(2);
  lead.answered(1);
  EXPECT_EQ(lead.next(), Action::kOver);
  EXPECT_TRUE(lead.is_decided());
}

TEST(LeadMachine, WhatTheStoreDoesNotTakeIsGivenUp) {
  LeadMachine lead(kRestartCourse, 2);
  take_until(lead, kRestartCourse, CourseStep::kRestore);
  ASSERT_EQ(lead.next(), Action::kDecide);
  lead.decided(false);
  EXPECT_EQ(lead.next(), Action::kGiveUp);
  EXPECT_EQ(lead.next(), Action::kOver);
  EXPECT_FALSE(lead.is_decided());
}

TEST(LeadMachine, NobodyWantsItAnyMore) {
  LeadMachine lead(kCheckpointCourse, 2);
  take(lead, CourseStep::kLook);
  lead.give_up();
  EXPECT_FALSE(lead.is_taken());
  EXPECT_EQ(lead.next(), Action::kGiveUp);
  EXPECT_EQ(lead.next(), Action::kOver);
}

TEST(PartMachine, StepsComeInTheirOrderAndOnce) {
  PartMachine part(kStopCourse);
  EXPECT_EQ(part.comes(CourseStep::kCheck), Turn::kTooEarly);
  EXPECT_EQ(part.comes(CourseStep::kLook), Turn::kNow);
  part.taken();
  EXPECT_EQ(part.comes(CourseStep::kLook), Turn::kAgain);
  EXPECT_EQ(part.comes(CourseStep::kEnd), Turn::kTooEarly);
  EXPECT_EQ(part.comes(CourseStep::kRestore), Turn::kTooEarly);  // of another course
  EXPECT_EQ(part.comes(CourseStep::kCheck), Turn::kNow);
}

// What to do at each point of the course if the leader is lost: one letter before it and one for each step, when it is
// under way and when it is taken.
std::string losses(const Course& course) {
  const auto letter = [](const PartMachine& part) {
    switch (part.when_lost()) {
      case Loss::kGiveUp: return 'u';  // undo
      case Loss::kAskStore: return 'a';
      default: return '-';
    }
  };
  PartMachine part(course);
  std::string all(1, letter(part));
  for (const auto step : course.steps) {
    EXPECT_EQ(part.comes(step), Turn::kNow);
    all += ' ';
    all += letter(part);
    part.taken();
    all += letter(part);
  }
  return all;
}

TEST(PartMachine, AsksTheStoreBetweenItsLastStepBeforeTheDecisionAndTheNextOne) {
  EXPECT_EQ(losses(kCheckpointCourse), "u uu uu uu uu uu u-");
  EXPECT_EQ(losses(kStopCourse), "u uu uu uu uu ua --");
  EXPECT_EQ(losses(kRestartCourse), "u uu ua --");
}

}  // namespace
}  // namespace ferry::host
