#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "host/journal/decision.h"
#include "host/move/move_machine.h"

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

struct World {
  MoveMachine source{1, MoveMachine::Time::max() / 2};
  DestinationDecision destination;
  Records source_disk{std::nullopt}, destination_disk{std::nullopt};
  bool was_stopped = false, was_promised = false;
  bool source_thawed = false;     // since it was stopped
  bool destination_live = false;  // CRIU has let it go
  bool is_over = false;

  auto key() const {
    return std::tuple(source.state(0), source.decision().state(), source.due(0),
                      destination.state(), source_disk, destination_disk, was_stopped, was_promised,
                      source_thawed, destination_live, is_over);
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
  const bool is_gone = world.destination.state() == DestinationDecision::State::kAborted;
  text += world.destination_live ? "IS_LIVE " : is_gone ? "IS_GONE " : "IS_HELD ";
  text += world.source_thawed  ? name(Decision::kAborted)
          : world.was_promised ? name(Decision::kCommitted)
                               : "NO_RECORD";
  text += ' ';
  text += world.destination.committed() ? name(Decision::kCommitted)
          : is_gone                     ? name(Decision::kAborted)
                                        : "NO_RECORD";
  return text;
}

constexpr Written kResults[] = {Written::kDurable, Written::kNot, Written::kUnknown};

void write(Records& disk, Decision decision, Written result) {
  if (result == Written::kDurable) disk = {decision};
  if (result == Written::kUnknown) disk.insert(decision);
}

// What the destination may do with the question whether it commits, or aborts.
std::vector<World> asked(const World& world, bool to_commit) {
  std::vector<World> after;
  World now = world;
  if (to_commit) {
    now.destination.promised();
  } else {
    now.destination.failed();
  }
  const auto step = now.destination.next();
  if (step == DestinationDecision::Step::kNone) return {now};
  const bool commits = step == DestinationDecision::Step::kRecordCommit;
  for (const Written result : kResults) {
    World written = now;
    written.destination.written(result);
    write(written.destination_disk, commits ? Decision::kCommitted : Decision::kAborted, result);
    after.push_back(written);
  }
  return after;
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
    add([&](World& next) {
      if (!next.source.happened(0, static_cast<Event>(event))) return;
      if (static_cast<Event>(event) == Event::kStopped) next.was_stopped = true;
      if (static_cast<Event>(event) == Event::kRestored) next.destination.held();
    });
  }
  add([](World& next) { next.source.failed(); });
  if (state == State::kReturning && (world.source_thawed || !world.was_stopped)) {
    add([](World& next) { next.source.happened(0, Event::kReturned); });
  } else if (state == State::kReturning) {
    add([](World& next) { next.source_thawed = true; });
  }
  // What fails there before the stop, the source hears of after it at the latest.
  if (world.was_stopped) add([](World& next) { next.destination.failed(); });
  if (world.destination.committed() && !world.destination_live) {
    add([](World& next) { next.destination_live = true; });
  }
  // A destination whose abort is not on record yet tries again.
  if (world.destination.state() == DestinationDecision::State::kRetracting) {
    for (const auto& next : asked(world, true)) all.push_back(next);
  }
  World stepping = world;
  switch (stepping.source.step(MoveMachine::Time::max() / 2)) {
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
        told.source.step(MoveMachine::Time::max() / 2);
        told.source.answered(heard.destination.answer(), MoveMachine::Time(0));
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
        next.destination = DestinationDecision::recovered(record);
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
