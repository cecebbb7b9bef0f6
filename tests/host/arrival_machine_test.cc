#include "host/move/machine/arrival_machine.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using Machine = ArrivalMachine;
using State = Machine::State;
using Event = Machine::Event;
using Action = Machine::Action;
using Step = Machine::Step;
using Time = Machine::Time;

constexpr Time kPatience = 60s;
constexpr Time kStart = 100s;

// What is told of one program until it is held, and the action that each leads to.
constexpr std::pair<Event, Action> kWayHere[] = {
    {Event::kPrepared, Action::kNone},
    {Event::kTransferred, Action::kRestore},
    {Event::kHeld, Action::kNone},
};

void arrive(Machine& machine, std::size_t program, Time at = kStart) {
  for (const auto& [event, action] : kWayHere) {
    EXPECT_TRUE(machine.happened(program, event, at));
    EXPECT_EQ(machine.next(program), action);
  }
}

TEST(ArrivalMachine, ACommittedProgramGoesOnWhenItIsConnected) {
  Machine machine(1, kPatience, kStart);
  arrive(machine, 0);
  EXPECT_EQ(machine.step(kStart), Step::kNone);  // the source has not promised
  machine.promised();
  EXPECT_FALSE(machine.failed());  // too late
  EXPECT_EQ(machine.step(kStart), Step::kRecordCommit);
  EXPECT_EQ(machine.step(kStart), Step::kNone);  // one at a time
  EXPECT_FALSE(machine.rests());
  machine.written(Written::kDurable, kStart);
  EXPECT_EQ(machine.decision().answer(), Answer::kCommitted);
  EXPECT_EQ(machine.next(0), Action::kConnect);
  EXPECT_FALSE(machine.rests());
  EXPECT_TRUE(machine.happened(0, Event::kConnected, kStart));
  EXPECT_EQ(machine.state(0), State::kHere);
  EXPECT_TRUE(machine.rests());
  EXPECT_EQ(machine.deadline(), std::nullopt);
  EXPECT_TRUE(machine.happened(0, Event::kEnded, kStart));
  EXPECT_EQ(machine.state(0), State::kOver);
}

// A restart from storage: it takes as long as it takes, and nobody else decides.
TEST(ArrivalMachine, WithoutASourceNobodyIsAsked) {
  Machine machine(1, std::nullopt, kStart);
  EXPECT_EQ(machine.deadline(), std::nullopt);
  arrive(machine, 0, kStart + 1h);
  EXPECT_FALSE(machine.asks_source(kStart + 2h));
  EXPECT_EQ(machine.deadline(), std::nullopt);
  EXPECT_EQ(machine.state(0), State::kHeld);
  machine.promised();
  EXPECT_EQ(machine.step(kStart + 2h), Step::kRecordCommit);
  machine.written(Written::kDurable, kStart + 2h);
  EXPECT_EQ(machine.decision().answer(), Answer::kCommitted);
  EXPECT_FALSE(machine.has_source());
  EXPECT_TRUE(Machine(1, kPatience, kStart).has_source());
  EXPECT_TRUE(Machine::recovered(Decision::kCommitted).has_source()) << "nobody knows any more";
}

TEST(ArrivalMachine, WhateverFailsBeforeTheRecordUndoesIt) {
  for (std::size_t told = 0; told <= std::size(kWayHere); ++told) {
    Machine machine(1, kPatience, kStart);
    for (std::size_t i = 0; i < told; ++i) machine.happened(0, kWayHere[i].first, kStart);
    EXPECT_TRUE(machine.failed());
    EXPECT_EQ(machine.decision().answer(), Answer::kAborted);
    if (told == 0) {
      EXPECT_EQ(machine.state(0), State::kUndone) << "nothing was made for it";
      continue;
    }
    EXPECT_EQ(machine.next(0), Action::kUndo) << told;
    EXPECT_FALSE(machine.rests());
    if (told < std::size(kWayHere)) {
      EXPECT_FALSE(machine.happened(0, kWayHere[told].first, kStart)) << "late news";
    }
    EXPECT_TRUE(machine.happened(0, Event::kUndone, kStart));
    EXPECT_EQ(machine.state(0), State::kUndone);
    EXPECT_TRUE(machine.rests());
    EXPECT_EQ(machine.step(kStart), Step::kNone);  // no record says the same
  }
}

TEST(ArrivalMachine, NothingHappensOutOfTurn) {
  for (std::size_t told = 0; told < std::size(kWayHere); ++told) {
    for (int event = 0; event <= static_cast<int>(Event::kAborted); ++event) {
      if (static_cast<Event>(event) == kWayHere[told].first) continue;
      Machine machine(1, kPatience, kStart);
      for (std::size_t i = 0; i < told; ++i) machine.happened(0, kWayHere[i].first, kStart);
      const State before = machine.state(0);
      EXPECT_FALSE(machine.happened(0, static_cast<Event>(event), kStart)) << told << ' ' << event;
      EXPECT_EQ(machine.state(0), before);
    }
  }
}

TEST(ArrivalMachine, APromiseOfWhatIsNotHeldAborts) {
  Machine group(2, kPatience, kStart);
  arrive(group, 0);
  group.happened(1, Event::kPrepared, kStart);
  group.promised();
  EXPECT_EQ(group.decision().answer(), Answer::kAborted);
  EXPECT_EQ(group.next(0), Action::kUndo);
  EXPECT_EQ(group.next(1), Action::kUndo);
}

TEST(ArrivalMachine, NoneOfAGroupGoesOnBeforeAllAreConnected) {
  Machine group(2, kPatience, kStart);
  arrive(group, 0);
  arrive(group, 1);
  group.promised();
  group.step(kStart);
  group.written(Written::kDurable, kStart);
  EXPECT_EQ(group.next(0), Action::kConnect);
  EXPECT_EQ(group.next(1), Action::kConnect);
  EXPECT_TRUE(group.happened(0, Event::kConnected, kStart));
  EXPECT_EQ(group.state(0), State::kConnected);
  EXPECT_TRUE(group.happened(1, Event::kConnected, kStart));
  EXPECT_EQ(group.state(0), State::kHere);
  EXPECT_EQ(group.state(1), State::kHere);
}

TEST(ArrivalMachine, ACommitThatIsCertainlyNotOnRecordIsAnAbort) {
  Machine machine(1, kPatience, kStart);
  arrive(machine, 0);
  machine.promised();
  EXPECT_EQ(machine.step(kStart), Step::kRecordCommit);
  machine.written(Written::kNot, kStart);
  EXPECT_EQ(machine.next(0), Action::kUndo);
  EXPECT_EQ(machine.step(kStart), Step::kNone);
}

// A later reader might find the commit: nothing is undone before the abort is on record.
TEST(ArrivalMachine, ACommitThatMayBeOnRecordIsRetractedFirst) {
  Machine machine(1, kPatience, kStart);
  arrive(machine, 0);
  machine.promised();
  machine.step(kStart);
  machine.written(Written::kUnknown, kStart);
  EXPECT_EQ(machine.decision().answer(), Answer::kUnknown);
  EXPECT_EQ(machine.step(kStart), Step::kRecordAbort);
  machine.written(Written::kNot, kStart);
  EXPECT_EQ(machine.next(0), Action::kNone);
  EXPECT_EQ(machine.step(kStart), Step::kNone);  // a little later
  EXPECT_FALSE(machine.rests());
  ASSERT_TRUE(machine.deadline());
  EXPECT_EQ(machine.step(*machine.deadline()), Step::kRecordAbort);
  machine.written(Written::kDurable, *machine.deadline());
  EXPECT_EQ(machine.next(0), Action::kUndo);
}

TEST(ArrivalMachine, ASourceOfWhichNothingIsHeardIsAsked) {
  Machine machine(1, kPatience, kStart);
  arrive(machine, 0);
  EXPECT_FALSE(machine.asks_source(kStart));
  ASSERT_TRUE(machine.deadline());
  const Time later = *machine.deadline();
  EXPECT_FALSE(machine.asks_source(later - 1ns));
  EXPECT_TRUE(machine.asks_source(later));
  EXPECT_FALSE(machine.asks_source(later));  // one question at a time
  machine.source_answered(0, Answer::kUnknown, later);
  EXPECT_FALSE(machine.asks_source(later));
  EXPECT_TRUE(machine.asks_source(*machine.deadline()));
  machine.source_answered(0, Answer::kCommitted, *machine.deadline());
  EXPECT_EQ(machine.step(later), Step::kRecordCommit);
}

TEST(ArrivalMachine, SilentSourcesKeepNoOtherFromBeingAsked) {
  Machine machine(3, kPatience, kStart, 3);
  for (std::size_t program = 0; program < 3; ++program) arrive(machine, program);
  std::set<std::size_t> asked;
  Time at = kStart + 10s;
  for (int questions = 0; questions < 3; ++questions) {
    const auto source = machine.asks_source(at);
    ASSERT_TRUE(source);
    asked.insert(*source);
    at += 10s;  // so long the question takes
    machine.source_answered(*source, std::nullopt, at);
  }
  EXPECT_EQ(asked.size(), 3u);
}

TEST(ArrivalMachine, ASourceMayGiveUp) {
  Machine machine(1, kPatience, kStart);
  arrive(machine, 0);
  EXPECT_TRUE(machine.asks_source(kStart + 10s));
  machine.source_answered(0, Answer::kAborted, kStart + 10s);
  EXPECT_EQ(machine.next(0), Action::kUndo);
  EXPECT_FALSE(machine.asks_source(kStart + 20s));
}

TEST(ArrivalMachine, ASilentSourceIsGivenUpUnlessItMayHaveCommitted) {
  for (const bool is_held : {false, true}) {
    Machine machine(1, kPatience, kStart);
    if (is_held) {
      arrive(machine, 0);
    } else {
      machine.happened(0, Event::kPrepared, kStart);
    }
    for (Time at = kStart + 10s; at <= kStart + 10s + kPatience; at += 10s) {
      ASSERT_TRUE(machine.asks_source(at));
      const bool answers = at == kStart + 10s;
      machine.source_answered(0, answers ? std::optional(Answer::kUnknown) : std::nullopt, at);
      EXPECT_FALSE(machine.decision().decided());
    }
    ASSERT_TRUE(machine.asks_source(kStart + 20s + kPatience));
    machine.source_answered(0, std::nullopt, kStart + 20s + kPatience);
    EXPECT_EQ(machine.decision().decided(), !is_held);
  }
}

// Programs of several hosts: any of these may give up as long as it has not promised.
TEST(ArrivalMachine, CommitsWhenAllSourcesHavePromised) {
  Machine group(3, kPatience, kStart, 2);
  for (const std::size_t program : {0, 1, 2}) arrive(group, program);
  group.promised(1);
  EXPECT_EQ(group.step(kStart), Step::kNone);
  EXPECT_EQ(group.decision().answer(), Answer::kUnknown);
  Machine other = group, third = group;
  // The other one is asked, and no other: each by itself.
  const Time later = *group.deadline();
  EXPECT_EQ(group.asks_source(later), std::optional<std::size_t>(0));
  EXPECT_EQ(group.asks_source(later), std::nullopt);
  group.source_answered(0, Answer::kCommitted, later);
  EXPECT_EQ(group.step(later), Step::kRecordCommit);
  EXPECT_TRUE(other.asks_source(later));
  other.source_answered(0, Answer::kAborted, later);
  EXPECT_EQ(other.decision().answer(), Answer::kAborted);
  for (const std::size_t program : {0, 1, 2}) EXPECT_EQ(other.next(program), Action::kUndo);
  third.operator_commits();
  EXPECT_EQ(third.step(later), Step::kRecordCommit);
}

// One that is not there ends it for all, as long as nobody may have promised.
TEST(ArrivalMachine, EachSourceIsAskedByItself) {
  Machine group(2, kPatience, kStart, 2);
  group.happened(0, Event::kPrepared, kStart);
  const Time end = kStart + 20s + kPatience;
  for (Time at = kStart + 10s; at <= end; at += 10s) {
    EXPECT_EQ(group.asks_source(at), std::optional<std::size_t>(0));
    EXPECT_EQ(group.asks_source(at), std::optional<std::size_t>(1));
    group.source_answered(0, Answer::kUnknown, at);
    EXPECT_FALSE(group.decision().decided());
    group.source_answered(1, std::nullopt, at);
    if (group.decision().decided()) {
      EXPECT_GT(at, kStart + kPatience);
      return;
    }
  }
  ADD_FAILURE() << "the silent one is not given up";
}

TEST(ArrivalMachine, IsInDoubtWhenADecisionTakesLong) {
  Machine machine(1, kPatience, kStart);
  EXPECT_FALSE(machine.in_doubt(kStart + 50s));
  arrive(machine, 0, kStart + 50s);
  EXPECT_FALSE(machine.in_doubt(kStart + 51s));
  EXPECT_TRUE(machine.in_doubt(kStart + 60s));
  machine.promised();
  EXPECT_FALSE(machine.in_doubt(kStart + 60s));
}

TEST(ArrivalMachine, AFerrydThatStartsAgainGoesByTheRecord) {
  Machine committed = Machine::recovered(Decision::kCommitted);
  EXPECT_EQ(committed.next(0), Action::kConnect);
  EXPECT_EQ(committed.step(kStart), Step::kNone);
  EXPECT_FALSE(committed.asks_source(kStart));
  for (const auto record : {std::optional<Decision>(), std::optional(Decision::kAborted)}) {
    Machine none = Machine::recovered(record);
    EXPECT_EQ(none.next(0), Action::kUndo);
    EXPECT_EQ(none.step(kStart), Step::kNone);
  }
}

TEST(ArrivalTransitions, AreOneForEachStateAndEvent) {
  std::set<std::pair<State, Event>> seen;
  for (const auto& transition : Machine::kTransitions) {
    EXPECT_TRUE(seen.emplace(transition.from, transition.event).second)
        << static_cast<int>(transition.from) << ' ' << static_cast<int>(transition.event);
  }
}

// From the beginning every state is reached, and from every state one of the two ends.
TEST(ArrivalTransitions, LeadEverywhereAndToAnEnd) {
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
  EXPECT_EQ(reached(State::kExpected).size(), static_cast<std::size_t>(State::kUndone) + 1);
  for (const State state : reached(State::kExpected)) {
    const auto from_here = reached(state);
    EXPECT_TRUE(from_here.contains(State::kOver) || from_here.contains(State::kUndone));
  }
}

// What is committed is never undone, and only what is held is committed.
TEST(ArrivalTransitions, OnlyWhatIsHeldMayGoOn) {
  for (const auto& transition : Machine::kTransitions) {
    if (transition.event == Event::kCommitted) {
      EXPECT_EQ(transition.from, State::kHeld);
    }
    if (transition.from == State::kConnecting || transition.from == State::kConnected ||
        transition.from == State::kHere) {
      EXPECT_NE(transition.event, Event::kAborted);
    }
  }
}

}  // namespace
}  // namespace ferry::host
