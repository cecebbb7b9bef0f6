#include "host/journal/decision.h"

namespace ferry::host {

SourceDecision SourceDecision::recovered(std::optional<Decision> record) {
  SourceDecision decision;
  decision.state_ = State::kAborted;
  if (record == Decision::kCommitted) decision.state_ = State::kPromised;
  if (record == Decision::kConfirmed) decision.state_ = State::kCommitted;
  return decision;
}

SourceDecision::Step SourceDecision::next() const {
  switch (state_) {
    case State::kRecording: return Step::kRecordCommit;
    case State::kPromised: return Step::kAskCommit;
    case State::kRevoking: return Step::kAskAbort;
    default: return Step::kNone;
  }
}

void SourceDecision::restored(std::size_t program) {
  restored_.insert(program);
  if (state_ == State::kOpen && restored_.size() == programs_) state_ = State::kRecording;
}

void SourceDecision::failed() {
  if (state_ == State::kOpen) state_ = State::kAborted;
}

void SourceDecision::written(Written result) {
  if (state_ != State::kRecording) return;
  switch (result) {
    case Written::kDurable: state_ = State::kPromised; break;
    case Written::kNot: state_ = State::kAborted; break;
    // A ferryd that starts anew may find the promise: the program goes on here only when the
    // destination can no longer take it up.
    case Written::kUnknown: state_ = State::kRevoking; break;
  }
}

void SourceDecision::answered(Answer answer) {
  if (state_ != State::kPromised && state_ != State::kRevoking) return;
  if (answer == Answer::kCommitted) state_ = State::kCommitted;
  if (answer == Answer::kAborted) state_ = State::kAborted;
}

void SourceDecision::operator_aborts() {
  if (state_ == State::kPromised || state_ == State::kRevoking) state_ = State::kAborted;
}

Answer SourceDecision::answer() const {
  switch (state_) {
    case State::kPromised:
    case State::kCommitted: return Answer::kCommitted;
    case State::kAborted: return Answer::kAborted;
    default: return Answer::kUnknown;
  }
}

DestinationDecision DestinationDecision::recovered(std::optional<Decision> record) {
  DestinationDecision decision;
  decision.state_ = record == Decision::kCommitted ? State::kCommitted : State::kAborted;
  return decision;
}

DestinationDecision::Step DestinationDecision::next() const {
  switch (state_) {
    case State::kRecording: return Step::kRecordCommit;
    case State::kRetracting: return Step::kRecordAbort;
    default: return Step::kNone;
  }
}

void DestinationDecision::held(std::size_t program) {
  held_.insert(program);
  if (state_ == State::kOpen && held_.size() == programs_) state_ = State::kHeld;
}

bool DestinationDecision::failed() {
  if (state_ == State::kOpen || state_ == State::kHeld) state_ = State::kAborted;
  return state_ == State::kAborted;
}

bool DestinationDecision::promised(std::size_t source) {
  promised_.insert(source);
  if (state_ == State::kHeld && promised_.size() == sources_) state_ = State::kRecording;
  // A source promises when all is held.
  if (state_ == State::kOpen) state_ = State::kAborted;
  return state_ != State::kAborted;
}

void DestinationDecision::operator_commits() {
  if (state_ == State::kHeld) state_ = State::kRecording;
}

void DestinationDecision::written(Written result) {
  if (state_ == State::kRecording) {
    switch (result) {
      case Written::kDurable: state_ = State::kCommitted; break;
      case Written::kNot: state_ = State::kAborted; break;
      // The source may hear of an abort only when no later reader can find the commit.
      case Written::kUnknown: state_ = State::kRetracting; break;
    }
  } else if (state_ == State::kRetracting && result == Written::kDurable) {
    state_ = State::kAborted;
  }
}

Answer DestinationDecision::answer() const {
  switch (state_) {
    case State::kCommitted: return Answer::kCommitted;
    case State::kAborted: return Answer::kAborted;
    default: return Answer::kUnknown;
  }
}

}  // namespace ferry::host
