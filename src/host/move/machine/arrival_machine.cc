#include "host/move/machine/arrival_machine.h"

#include <algorithm>
#include <utility>

#include "host/move/machine/transitions.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;

constexpr auto kDecisionTime = 2s;  // more than moves take to be decided
constexpr auto kAskSourceEvery = 200ms;
constexpr auto kRecordEvery = 500ms;  // between attempts to record an abort

}  // namespace

ArrivalMachine::ArrivalMachine(std::size_t programs, std::optional<Time> patience, Time now,
                               std::size_t sources)
    : programs_(programs),
      sources_(sources, Source{now + kDecisionTime, now}),
      patience_(patience),
      decision_(programs, sources) {}

ArrivalMachine::ArrivalMachine(DestinationDecision decision)
    : programs_{{State::kHeld, Action::kNone}}, patience_(Time{}), decision_(std::move(decision)) {
  conclude();
}

ArrivalMachine ArrivalMachine::recovered(std::optional<Decision> record) {
  return ArrivalMachine(DestinationDecision::recovered(record));
}

ArrivalMachine::Action ArrivalMachine::next(std::size_t program) {
  return std::exchange(programs_.at(program).due, Action::kNone);
}

bool ArrivalMachine::apply(Program& program, Event event) {
  const Transition* found = transition_of(kTransitions, program.state, event);
  if (found == nullptr) return false;
  program.state = found->to;
  program.due = found->action;
  return true;
}

bool ArrivalMachine::happened(std::size_t program, Event event, Time now) {
  if (event >= Event::kCommitted || !apply(programs_.at(program), event)) return false;
  if (event == Event::kHeld) {
    decision_.held(program);
    held_at_ = now;
  }
  if (event == Event::kConnected) {
    const auto is_connected = [](const Program& one) { return one.state == State::kConnected; };
    if (std::all_of(programs_.begin(), programs_.end(), is_connected)) {
      for (auto& one : programs_) apply(one, Event::kAllConnected);
    }
  }
  return true;
}

void ArrivalMachine::promised(std::size_t source) {
  decision_.promised(source);
  conclude();
}

void ArrivalMachine::operator_commits() {
  decision_.operator_commits();
}

bool ArrivalMachine::failed() {
  const bool is_aborted = decision_.failed();
  conclude();
  return is_aborted;
}

// Tells all programs the decision, once there is one.
void ArrivalMachine::conclude() {
  if (is_concluded_ || !decision_.decided()) return;
  is_concluded_ = true;
  const Event event = decision_.committed() ? Event::kCommitted : Event::kAborted;
  for (auto& program : programs_) apply(program, event);
}

ArrivalMachine::Step ArrivalMachine::step(Time now) {
  if (is_stepping_ || now < record_at_) return Step::kNone;
  switch (decision_.next()) {
    case DestinationDecision::Step::kNone: return Step::kNone;
    case DestinationDecision::Step::kRecordCommit: is_stepping_ = true; return Step::kRecordCommit;
    case DestinationDecision::Step::kRecordAbort: is_stepping_ = true; return Step::kRecordAbort;
  }
  return Step::kNone;
}

void ArrivalMachine::written(Written result, Time now) {
  is_stepping_ = false;
  const bool was_abort = decision_.state() == DestinationDecision::State::kRetracting;
  if (was_abort) record_at_ = now + kRecordEvery;
  decision_.written(result);
  conclude();
}

std::optional<std::size_t> ArrivalMachine::asks_source(Time now) {
  if (!patience_ || decision_.decided()) return std::nullopt;
  // The one that has waited for longest: those that do not answer keep nobody from being asked.
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    if (source.is_asked || now < source.ask_at || decision_.has_promised(i)) continue;
    if (!first || source.ask_at < sources_[*first].ask_at) first = i;
  }
  if (first) sources_[*first].is_asked = true;
  return first;
}

void ArrivalMachine::source_answered(std::size_t index, std::optional<Answer> answer, Time now) {
  Source& source = sources_.at(index);
  source.is_asked = false;
  source.ask_at = now + kAskSourceEvery;
  if (answer) source.heard = now;
  if (answer == Answer::kCommitted) promised(index);
  if (answer == Answer::kAborted) failed();
  // A source whose programs are all held may have committed: silence does not abort them.
  const bool is_open = decision_.state() == DestinationDecision::State::kOpen;
  if (is_open && patience_ && now - source.heard > *patience_) failed();
}

std::optional<ArrivalMachine::Time> ArrivalMachine::deadline() const {
  if (decision_.decided()) return std::nullopt;
  std::optional<Time> first;
  for (std::size_t i = 0; patience_ && i < sources_.size(); ++i) {
    if (sources_[i].is_asked || decision_.has_promised(i)) continue;
    if (!first || sources_[i].ask_at < *first) first = sources_[i].ask_at;
  }
  const bool records = decision_.next() != DestinationDecision::Step::kNone;
  if (records && !is_stepping_ && (!first || record_at_ < *first)) first = record_at_;
  return first;
}

bool ArrivalMachine::rests() const {
  const auto is_at_work = [](const Program& program) {
    return program.state == State::kConnecting || program.state == State::kUndoing;
  };
  return decision_.next() == DestinationDecision::Step::kNone &&
         std::none_of(programs_.begin(), programs_.end(), is_at_work);
}

bool ArrivalMachine::in_doubt(Time now) const {
  return decision_.waits() && now - held_at_ > kDecisionTime;
}

}  // namespace ferry::host
