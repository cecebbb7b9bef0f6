#include "host/move/machine/move_machine.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using Machine = MoveMachine;
using State = Machine::State;
using Event = Machine::Event;
using Action = Machine::Action;
using Step = Machine::Step;
using Time = Machine::Time;

constexpr Time kStandstill = 10s;

// What is told of one program from its check until the destination holds it, and the action that
// each leads to.
constexpr std::pair<Event, Action> kWayThere[] = {
    {Event::kChecked, Action::kPrepare},     {Event::kPrepared, Action::kCopyAhead},
    {Event::kCopied, Action::kDump},         {Event::kStopped, Action::kNone},
    {Event::kFrozen, Action::kNone},         {Event::kDumped, Action::kTransfer},
    {Event::kTransferred, Action::kRestore}, {Event::kRestored, Action::kNone},
};

struct Alone {
  Machine machine{1, kStandstill};
  Time now = 1s;

  Action next() { return machine.next(0, now); }
  // Until the destination holds it.
  void go_there() {
    EXPECT_EQ(next(), Action::kCheck);
    for (const auto& [event, action] : kWayThere) {
      EXPECT_TRUE(machine.happened(0, event));
      EXPECT_EQ(next(), action);
    }
  }
};

TEST(MoveMachine, ADecidedMoveGoesOnThere) {
  Alone move;
  move.go_there();
  EXPECT_EQ(move.machine.step(move.now), Step::kRecordPromise);
  EXPECT_EQ(move.machine.step(move.now), Step::kNone);  // one at a time
  move.machine.written(Written::kDurable);
  EXPECT_EQ(move.machine.step(move.now), Step::kAskCommit);
  move.machine.answered(Answer::kCommitted, move.now);
  EXPECT_EQ(move.next(), Action::kLeave);
  EXPECT_EQ(move.machine.step(move.now), Step::kRecordOutcome);
  EXPECT_EQ(move.machine.step(move.now), Step::kNone);
  EXPECT_TRUE(move.machine.happened(0, Event::kLeft));
  EXPECT_EQ(move.next(), Action::kFollow);
  EXPECT_TRUE(move.machine.happened(0, Event::kUnneeded));
  EXPECT_EQ(move.machine.state(0), State::kOver);
  EXPECT_EQ(move.next(), Action::kNone);
}

TEST(MoveMachine, ASilentDestinationIsAskedAgainAfterAWhile) {
  Alone move;
  move.go_there();
  move.machine.step(move.now);
  move.machine.written(Written::kDurable);
  EXPECT_EQ(move.machine.step(move.now), Step::kAskCommit);
  move.machine.answered(Answer::kUnknown, move.now);
  EXPECT_EQ(move.machine.step(move.now), Step::kNone);
  ASSERT_TRUE(move.machine.deadline());
  EXPECT_GT(*move.machine.deadline(), move.now);
  EXPECT_EQ(move.machine.step(*move.machine.deadline()), Step::kAskCommit);
  EXPECT_FALSE(move.machine.failed());  // too late
  EXPECT_EQ(move.machine.state(0), State::kHeldThere);
}

TEST(MoveMachine, WhateverFailsBeforeThePromiseBringsItBack) {
  for (std::size_t told = 0; told <= std::size(kWayThere); ++told) {
    Alone move;
    for (std::size_t i = 0; i < told; ++i) move.machine.happened(0, kWayThere[i].first);
    if (told == std::size(kWayThere)) {
      EXPECT_FALSE(move.machine.failed()) << "its promise is being recorded";
      continue;
    }
    EXPECT_TRUE(move.machine.failed()) << told;
    EXPECT_EQ(move.next(), Action::kReturn) << told;
    EXPECT_FALSE(move.machine.happened(0, kWayThere[told].first)) << "late news";
    EXPECT_TRUE(move.machine.happened(0, Event::kReturned));
    EXPECT_EQ(move.machine.state(0), State::kBack);
    EXPECT_EQ(move.machine.step(move.now), Step::kNone);  // nothing is on record
  }
}

TEST(MoveMachine, NothingHappensOutOfTurn) {
  for (std::size_t told = 0; told < std::size(kWayThere); ++told) {
    for (int event = 0; event <= static_cast<int>(Event::kAborted); ++event) {
      if (static_cast<Event>(event) == kWayThere[told].first) continue;
      Alone move;
      for (std::size_t i = 0; i < told; ++i) move.machine.happened(0, kWayThere[i].first);
      const State before = move.machine.state(0);
      EXPECT_FALSE(move.machine.happened(0, static_cast<Event>(event))) << told << ' ' << event;
      EXPECT_EQ(move.machine.state(0), before);
    }
  }
}

TEST(MoveMachine, AStandstillEndsBeforeThePromiseOnly) {
  Alone move;
  for (const auto& [event, action] : kWayThere) {
    if (event == Event::kStopped) {
      ASSERT_TRUE(move.machine.deadline());
      EXPECT_EQ(*move.machine.deadline(), move.now + kStandstill);
      Machine late = move.machine;
      EXPECT_FALSE(late.time_passed(move.now + kStandstill - 1ns));
      EXPECT_TRUE(late.time_passed(move.now + kStandstill));
      EXPECT_EQ(late.next(0, move.now), Action::kReturn);
    }
    move.machine.happened(0, event);
    move.next();
  }
  EXPECT_FALSE(move.machine.time_passed(move.now + kStandstill));
}

TEST(MoveMachine, AnUnknownRecordIsRevokedAndTheOutcomeRecorded) {
  Alone move;
  move.go_there();
  EXPECT_EQ(move.machine.step(move.now), Step::kRecordPromise);
  move.machine.written(Written::kUnknown);
  EXPECT_EQ(move.machine.step(move.now), Step::kAskAbort);
  move.machine.answered(Answer::kAborted, move.now);
  EXPECT_EQ(move.next(), Action::kReturn);
  EXPECT_EQ(move.machine.step(move.now), Step::kRecordOutcome);
}

TEST(MoveMachine, AnOperatorsWordIsOnRecordAlready) {
  Alone move;
  move.go_there();
  move.machine.step(move.now);
  move.machine.written(Written::kDurable);
  move.machine.step(move.now);
  move.machine.answered(Answer::kUnknown, move.now);
  move.machine.operator_aborts();
  EXPECT_EQ(move.next(), Action::kReturn);
  EXPECT_EQ(move.machine.step(move.now), Step::kNone);
}

TEST(MoveMachine, AGroupWaitsForItsLast) {
  Machine group(2, kStandstill);
  const Time now = 1s;
  for (const auto& [event, action] : kWayThere) {
    group.next(0, now);
    group.next(1, now);
    EXPECT_TRUE(group.happened(0, event));
    const bool waits =
        event == Event::kChecked || event == Event::kPrepared || event == Event::kCopied;
    if (waits) {
      EXPECT_EQ(group.due(0), Action::kNone);
    }
    EXPECT_EQ(group.step(now), Step::kNone);
    EXPECT_TRUE(group.happened(1, event));
    EXPECT_EQ(group.due(0), action);
    EXPECT_EQ(group.due(1), action);
  }
  EXPECT_EQ(group.step(now), Step::kRecordPromise);
}

// Three times, before the program is stopped; and from then on for nobody.
TEST(MoveMachine, WithProgramsOfOtherHostsItWaitsForThese) {
  Machine group(2, kStandstill, /*has_others=*/true);
  const Time now = 1s;
  const std::map<Event, State> meetings{{Event::kChecked, State::kChecked},
                                        {Event::kPrepared, State::kPrepared},
                                        {Event::kCopied, State::kCopied}};
  for (const auto& [event, action] : kWayThere) {
    group.next(0, now);
    group.next(1, now);
    EXPECT_TRUE(group.happened(0, event));
    EXPECT_EQ(group.waits_for_others(), std::nullopt);
    group.others_came();  // not yet
    EXPECT_TRUE(group.happened(1, event));
    if (const auto meeting = meetings.find(event); meeting != meetings.end()) {
      EXPECT_EQ(group.waits_for_others(), meeting->second);
      EXPECT_EQ(group.due(0), Action::kNone);
      Machine without = group;
      EXPECT_TRUE(without.failed());
      EXPECT_EQ(without.waits_for_others(), std::nullopt);
      EXPECT_EQ(without.due(1), Action::kReturn);
      group.others_came();
    }
    EXPECT_EQ(group.waits_for_others(), std::nullopt);
    EXPECT_EQ(group.due(0), action);
    EXPECT_EQ(group.due(1), action);
  }
  EXPECT_EQ(group.step(now), Step::kRecordPromise);
}

TEST(MoveMachine, OneFailureBringsTheWholeGroupBack) {
  Machine group(2, kStandstill);
  for (const auto& [event, action] : kWayThere) {
    group.happened(0, event);
    if (event != Event::kRestored) group.happened(1, event);
  }
  EXPECT_EQ(group.state(0), State::kHeldThere);
  EXPECT_TRUE(group.failed());
  for (const std::size_t program : {0, 1}) {
    EXPECT_EQ(group.next(program, 1s), Action::kReturn);
  }
}

TEST(MoveMachine, AFerrydThatStartsAgainGoesByTheRecord) {
  Machine none = Machine::recovered(std::nullopt);
  EXPECT_EQ(none.next(0, 1s), Action::kReturn);
  Machine aborted = Machine::recovered(Decision::kAborted);
  EXPECT_EQ(aborted.next(0, 1s), Action::kReturn);
  EXPECT_EQ(aborted.step(1s), Step::kNone);

  Machine confirmed = Machine::recovered(Decision::kConfirmed);
  EXPECT_EQ(confirmed.next(0, 1s), Action::kLeave);
  EXPECT_EQ(confirmed.step(1s), Step::kNone);

  Machine promised = Machine::recovered(Decision::kCommitted);
  EXPECT_EQ(promised.next(0, 1s), Action::kNone);
  EXPECT_EQ(promised.step(1s), Step::kAskCommit);
  promised.answered(Answer::kAborted, 1s);
  EXPECT_EQ(promised.next(0, 1s), Action::kReturn);
  EXPECT_EQ(promised.step(1s), Step::kRecordOutcome);
}

TEST(MoveTransitions, AreOneForEachStateAndEvent) {
  std::set<std::pair<State, Event>> seen;
  for (const auto& transition : Machine::kTransitions) {
    EXPECT_TRUE(seen.emplace(transition.from, transition.event).second)
        << static_cast<int>(transition.from) << ' ' << static_cast<int>(transition.event);
  }
}

// From the check every state is reached, and from every state one of the two ends.
TEST(MoveTransitions, LeadEverywhereAndToAnEnd) {
  std::multimap<State, State> next;
  for (const auto& transition : Machine::kTransitions) next.emplace(transition.from, transition.to);
  const auto reached = [&](State from) {
    std::set<State> all{from};
    for (std::size_t before = 0; before != all.size();) {
      before = all.size();
      for (const auto& [state, to] : next) {
        if (all.contains(state)) all.insert(to);
      }
    }
    return all;
  };
  EXPECT_EQ(reached(State::kChecking).size(), static_cast<std::size_t>(State::kBack) + 1);
  for (const State state : reached(State::kChecking)) {
    const auto from_here = reached(state);
    EXPECT_TRUE(from_here.contains(State::kOver) || from_here.contains(State::kBack));
  }
}

// What is past the promise never returns, and before it nothing leaves.
TEST(MoveTransitions, OnlyWhatIsHeldThereMayLeave) {
  for (const auto& transition : Machine::kTransitions) {
    if (transition.event == Event::kCommitted) {
      EXPECT_EQ(transition.from, State::kHeldThere);
    }
    if (transition.from == State::kLeaving || transition.from == State::kGone) {
      EXPECT_NE(transition.event, Event::kAborted);
    }
  }
}

}  // namespace
}  // namespace ferry::host
