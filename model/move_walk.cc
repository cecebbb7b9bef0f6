#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "host/journal/decision.h"
#include "host/move/machine/arrival_machine.h"
#include "host/move/machine/move_machine.h"

// Walks through all that the machines of both sides of a move can do with each other: whatever
// fails, is told late or not at all, is written for certain or perhaps, and ferryds that crash at
// any time. Prints each change of the variables that migration.pml has for a move (typedef Program),
// once: "moving source_live destination source_record destination_record > the same after it".
// walk_test.py compares them with the model's.
namespace ferry::host {
namespace {

using State = MoveMachine::State;
using Event = MoveMachine::Event;
using Records = std::set<std::optional<Decision>>;  // what a later reader may find

constexpr auto kLater = MoveMachine::Time::max() / 2;  // all that waits for a time is due then

struct World {
  MoveMachine source{1, kLater};
  ArrivalMachine destination{1, kLater, MoveMachine::Time(0)};
  Records source_disk{std::nullopt}, destination_disk{std::nullopt};
  bool was_stopped = false, was_promised = false;
  bool source_thawed = false;     // since it was stopped
  bool destination_live = false;  // CRIU has let it go
  bool is_over = false;

  auto key() const {
    return std::tuple(source.state(0), source.decision().state(), source.due(0),
                      destination.state(0), destination.decision().state(), source_disk,
                      destination_disk, was_stopped, was_promised, source_thawed, destination_live,
                      is_over);
  }
};

const char* name(Decision decision) {
  return decision == Decision::kAborted ? "ABORT_RECORD" : "COMMIT_RECORD";
}

// As the model sees it.
std::string abstract(const World& world) {
  if (!world.was_stopped || world.is_over) return "0 1 IS_ABSENT NO_RECORD NO_RECORD";
  std::string text = "1 ";
  text += world.source_thawed ? "1 " : "0 ";
  const bool is_gone = world.destination.decision().answer() == Answer::kAborted;
  text += world.destination_live ? "IS_LIVE " : is_gone ? "IS_GONE " : "IS_HELD ";
  text += world.source_thawed  ? name(Decision::kAborted)
          : world.was_promised ? name(Decision::kCommitted)
                               : "NO_RECORD";
  text += ' ';
  text += world.destination.decision().committed() ? name(Decision::kCommitted)
          : is_gone                                ? name(Decision::kAborted)
                                                   : "NO_RECORD";
  return text;
}

constexpr Written kResults[] = {Written::kDurable, Written::kNot, Written::kUnknown};

void write(Records& disk, Decision decision, Written result) {
  if (result == Written::kDurable) disk = {decision};
  if (result == Written::kUnknown) disk.insert(decision);
}

// What may come of the records that the destination owes.
std::vector<World> recorded(const World& world) {
  World now = world;
  const auto step = now.destination.step(kLater);
  if (step == ArrivalMachine::Step::kNone) return {now};
  const bool commits = step == ArrivalMachine::Step::kRecordCommit;
  std::vector<World> after;
  for (const Written result : kResults) {
    World written = now;
    written.destination.written(result, MoveMachine::Time(0));
    write(written.destination_disk, commits ? Decision::kCommitted : Decision::kAborted, result);
    after.push_back(written);
  }
  return after;
}

// What the destination may do with the question whether it commits, or aborts.
std::vector<World> asked(const World& world, bool to_commit) {
  World now = world;
  if (to_commit) {
    now.destination.promised();
  } else {
    now.destination.failed();
  }
  return recorded(now);
}

// What the source tells of its own program when the destination has done its part of the same; it
// fails when the destination cannot.
void tell(World* world, Event event) {
  static const std::map<Event, ArrivalMachine::Event> kThere = {
      {Event::kPrepared, ArrivalMachine::Event::kPrepared},
      {Event::kTransferred, ArrivalMachine::Event::kTransferred},
      {Event::kRestored, ArrivalMachine::Event::kHeld}};
  World told = *world;
  if (!told.source.happened(0, event)) return;
  const auto there = kThere.find(event);
  if (there != kThere.end() && !told.destination.happened(0, there->second, MoveMachine::Time(0))) {
    world->source.failed();
    return;
  }
  if (event == Event::kStopped) told.was_stopped = true;
  *world = told;
}

std::vector<World> successors(const World& world) {
  std::vector<World> all;
  if (world.is_over) return all;
  const auto add = [&](auto change) {
    World next = world;
    change(next);
    all.push_back(next);
  };
  const State state = world.source.state(0);
  const bool is_gone = state == State::kGone || state == State::kOver;
  if (state == State::kBack || (is_gone && world.destination_live)) {
    add([](World& next) { next.is_over = true; });
  }
  // The way there.
  for (int event = 0; event <= static_cast<int>(Event::kUnneeded); ++event) {
    add([&](World& next) { tell(&next, static_cast<Event>(event)); });
  }
  add([](World& next) { next.source.failed(); });
  if (state == State::kReturning && (world.source_thawed || !world.was_stopped)) {
    add([](World& next) { next.source.happened(0, Event::kReturned); });
  } else if (state == State::kReturning) {
    add([](World& next) { next.source_thawed = true; });
  }
  // What fails there before the stop, the source hears of after it at the latest.
  if (world.was_stopped) add([](World& next) { next.destination.failed(); });
  for (const auto event : {ArrivalMachine::Event::kConnected, ArrivalMachine::Event::kUndone}) {
    add([&](World& next) { next.destination.happened(0, event, MoveMachine::Time(0)); });
  }
  if (world.destination.state(0) == ArrivalMachine::State::kHere && !world.destination_live) {
    add([](World& next) { next.destination_live = true; });
  }
  // A destination whose abort is not on record yet tries again.
  for (const auto& next : recorded(world)) all.push_back(next);
  // One that hears nothing asks.
  if (World asking = world; asking.destination.asks_source(kLater)) {
    asking.destination.source_answered(0, world.source.decision().answer(), MoveMachine::Time(0));
    for (const auto& next : recorded(asking)) all.push_back(next);
  }
  World stepping = world;
  switch (stepping.source.step(kLater)) {
    case MoveMachine::Step::kRecordPromise:
      for (const Written result : kResults) {
        World next = stepping;
        write(next.source_disk, Decision::kCommitted, result);
        next.source.written(result);
        all.push_back(next);
      }
      break;
    case MoveMachine::Step::kAskCommit:
    case MoveMachine::Step::kAskAbort: {
      const bool commit = world.source.decision().promised();
      // The question gets lost, or its answer, or neither.
      for (const auto& heard : asked(world, commit)) {
        all.push_back(heard);
        World told = heard;
        told.source.step(kLater);
        told.source.answered(heard.destination.decision().answer(), MoveMachine::Time(0));
        all.push_back(told);
      }
      break;
    }
    case MoveMachine::Step::kRecordOutcome: {
      const bool committed = world.source.decision().committed();
      write(stepping.source_disk, committed ? Decision::kConfirmed : Decision::kAborted,
            Written::kDurable);
      all.push_back(stepping);
      break;
    }
    case MoveMachine::Step::kNone: break;
  }
  // The ferryds crash, once there is something to remember.
  if (world.was_stopped) {
    for (const auto& record : world.source_disk) {
      add([&](World& next) {
        next.source = MoveMachine::recovered(record);
        next.source_disk = {record};
      });
    }
  }
  if (world.was_stopped && !world.destination_live) {
    for (const auto& record : world.destination_disk) {
      add([&](World& next) {
        next.destination = ArrivalMachine::recovered(record);
        next.destination_disk = {record};
      });
    }
  }
  for (auto& next : all) next.was_promised |= next.source.decision().promised();
  return all;
}

int walk() {
  std::set<decltype(World().key())> seen;
  std::set<std::string> changes;
  std::vector<World> left{World()};
  while (!left.empty()) {
    const World world = left.back();
    left.pop_back();
    if (!seen.insert(world.key()).second) continue;
    const std::string before = abstract(world);
    for (const auto& next : successors(world)) {
      if (next.source_thawed && next.destination_live) {
        std::printf("two live copies, after %s\n", before.c_str());
        return 1;
      }
      const std::string after = abstract(next);
      if (after != before) changes.insert(before + " > " + after);
      left.push_back(next);
    }
  }
  for (const auto& change : changes) std::printf("%s\n", change.c_str());
  std::fprintf(stderr, "%zu states, %zu changes\n", seen.size(), changes.size());
  return 0;
}

}  // namespace
}  // namespace ferry::host

int main() {
  return ferry::host::walk();
}
