#include "host/move/machine/move_machine.h"

#include <algorithm>
#include <utility>

#include "host/move/machine/transitions.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kAskEvery{100};  // while the destination does not answer

}  // namespace

MoveMachine::MoveMachine(std::size_t programs, Time standstill, bool has_others)
    : programs_(programs), standstill_(standstill), has_others_(has_others), decision_(programs) {}

MoveMachine::MoveMachine(SourceDecision decision)
    : programs_{{State::kHeldThere, Action::kNone, {}}},
      decision_(std::move(decision)),
      owes_outcome_(decision_.promised()) {
  conclude();
}

MoveMachine MoveMachine::recovered(std::optional<Decision> record) {
  return MoveMachine(SourceDecision::recovered(record));
}

MoveMachine::Action MoveMachine::next(std::size_t program, Time now) {
  Program& one = programs_.at(program);
  const Action action = std::exchange(one.due, Action::kNone);
  if (action == Action::kDump) one.still_until = now + standstill_;
  return action;
}

bool MoveMachine::apply(Program& program, Event event) {
  const Transition* found = transition_of(kTransitions, program.state, event);
  if (found == nullptr) return false;
  program.state = found->to;
  program.due = found->action;
  return true;
}

bool MoveMachine::happened(std::size_t program, Event event) {
  if (event >= Event::kAllChecked || !apply(programs_.at(program), event)) return false;
  switch (event) {
    case Event::kChecked: meet(State::kChecked, Event::kAllChecked); break;
    case Event::kPrepared: meet(State::kPrepared, Event::kAllPrepared); break;
    case Event::kCopied: meet(State::kCopied, Event::kAllCopied); break;
    case Event::kRestored: decision_.restored(program); break;
    default: break;
  }
  return true;
}

bool MoveMachine::are_all(State state) const {
  return std::all_of(programs_.begin(), programs_.end(),
                     [state](const Program& program) { return program.state == state; });
}

void MoveMachine::tell_all(Event event) {
  for (auto& program : programs_) apply(program, event);
}

// Lets all programs go on together when the last of them is in this state.
void MoveMachine::meet(State state, Event event) {
  if (!has_others_ && are_all(state)) tell_all(event);
}

std::optional<MoveMachine::State> MoveMachine::waits_for_others() const {
  for (const State state : {State::kChecked, State::kPrepared, State::kCopied}) {
    if (has_others_ && are_all(state)) return state;
  }
  return std::nullopt;
}

void MoveMachine::others_came() {
  const auto state = waits_for_others();
  if (state == State::kChecked) tell_all(Event::kAllChecked);
  if (state == State::kPrepared) tell_all(Event::kAllPrepared);
  if (state == State::kCopied) tell_all(Event::kAllCopied);
}

// Tells all programs the decision, once there is one.
void MoveMachine::conclude() {
  if (is_concluded_ || !decision_.decided()) return;
  is_concluded_ = true;
  tell_all(decision_.committed() ? Event::kCommitted : Event::kAborted);
}

MoveMachine::Step MoveMachine::step(Time now) {
  if (is_stepping_) return Step::kNone;
  Step due = Step::kNone;
  switch (decision_.next()) {
    case SourceDecision::Step::kNone:
      if (decision_.decided() && std::exchange(owes_outcome_, false)) return Step::kRecordOutcome;
      return Step::kNone;
    case SourceDecision::Step::kRecordCommit: due = Step::kRecordPromise; break;
    case SourceDecision::Step::kAskCommit: due = Step::kAskCommit; break;
    case SourceDecision::Step::kAskAbort: due = Step::kAskAbort; break;
  }
  if (due == Step::kRecordPromise) {
    owes_outcome_ = true;
  } else if (ask_at_ && now < *ask_at_) {
    return Step::kNone;
  }
  is_stepping_ = true;
  return due;
}

void MoveMachine::written(Written result) {
  is_stepping_ = false;
  decision_.written(result);
  conclude();
}

void MoveMachine::answered(Answer answer, Time now) {
  is_stepping_ = false;
  ask_at_ = now + kAskEvery;
  decision_.answered(answer);
  conclude();
}

bool MoveMachine::failed() {
  decision_.failed();
  conclude();
  return decision_.state() == SourceDecision::State::kAborted;
}

void MoveMachine::operator_aborts() {
  decision_.operator_aborts();
  owes_outcome_ = false;  // the operator's word is on record
  conclude();
}

std::optional<MoveMachine::Time> MoveMachine::deadline() const {
  std::optional<Time> first;
  const auto add = [&](const std::optional<Time>& time) {
    if (time && (!first || *time < *first)) first = time;
  };
  if (decision_.state() == SourceDecision::State::kOpen) {
    for (const auto& program : programs_) add(program.still_until);
  } else if (!is_stepping_ && !decision_.decided()) {
    add(ask_at_);
  }
  return first;
}

bool MoveMachine::time_passed(Time now) {
  if (decision_.state() != SourceDecision::State::kOpen) return false;
  const auto stood_still = [now](const Program& program) {
    return program.still_until && *program.still_until <= now;
  };
  if (!std::any_of(programs_.begin(), programs_.end(), stood_still)) return false;
  return failed();
}

}  // namespace ferry::host
