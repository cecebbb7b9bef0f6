#include "host/checkpoint/course/lead_machine.h"

namespace ferry::host {

LeadMachine::LeadMachine(const Course& course, std::size_t hosts)
    : course_(course), hosts_(hosts), step_(course.steps.front()) {}

LeadMachine::Action LeadMachine::next() {
  switch (state_) {
    case State::kDue:
      if (at_ == course_.decision && !is_decided_) {
        state_ = State::kDeciding;
        return Action::kDecide;
      }
      if (at_ == course_.steps.size()) {
        state_ = State::kOver;
        return Action::kOver;
      }
      tell();
      return awaited_.empty() ? next() : Action::kTell;
    case State::kGivingUp:
      if (!has_given_up_) {
        has_given_up_ = true;
        return Action::kGiveUp;
      }
      if (!awaited_.empty()) return Action::kNone;
      state_ = State::kOver;
      return Action::kOver;
    case State::kOver: return Action::kOver;
    default: return Action::kNone;
  }
}

void LeadMachine::tell() {
  state_ = State::kTelling;
  step_ = course_.steps[at_];
  for (std::size_t host = 0; host < hosts_; ++host) {
    if (!failed_.contains(host)) awaited_.insert(host);
  }
  if (awaited_.empty()) go_on();
}

void LeadMachine::go_on() {
  if (state_ != State::kTelling || !awaited_.empty()) return;
  ++at_;
  state_ = State::kDue;
}

void LeadMachine::answered(std::size_t host) {
  awaited_.erase(host);
  go_on();
}

void LeadMachine::failed(std::size_t host) {
  awaited_.erase(host);
  failed_.insert(host);
  if (is_decided_) return go_on();
  give_up();
}

void LeadMachine::give_up() {
  if (state_ != State::kOver) state_ = State::kGivingUp;
}

void LeadMachine::decided(bool goes_on) {
  if (state_ != State::kDeciding) return;
  is_decided_ = goes_on;
  if (!goes_on) return give_up();
  state_ = State::kDue;
}

}  // namespace ferry::host
