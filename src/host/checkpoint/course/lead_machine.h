#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

#include "host/checkpoint/course/course.h"

namespace ferry::host {

// The side of the ferryd that leads. Its owner carries out the actions that next() gives, and tells it what has come of
// them. Hosts are known by their index.
//
//   telling ─ all have answered ─► telling the next step … ─► deciding ─► telling … ─► over
//      └───────── one has failed, or nobody wants it ─────────────┴─► giving up ─ none is awaited ─► over
//
// After the decision a host that fails is left out of what follows: the others are told all the same.
class LeadMachine {
 public:
  // Each is given once, kOver again and again.
  enum class Action : std::uint8_t {
    kNone,
    kTell,    // step() is told to the hosts that it awaits → answered(), failed()
    kDecide,  // in the store → decided()
    kGiveUp,  // all conversations with hosts are ended → failed(), of those that it awaits
    kOver,
  };

  LeadMachine(const Course& course, std::size_t hosts);

  Action next();
  // That is told, or was last; before the first one: that one.
  CourseStep step() const { return step_; }
  bool awaits(std::size_t host) const { return awaited_.contains(host); }
  // All hosts have taken step(), but for those that have failed after the decision.
  bool is_taken() const { return state_ == State::kDue && at_ > 0; }

  void answered(std::size_t host);
  // It has answered with a failure, or is lost.
  void failed(std::size_t host);
  // The user gives it up, or this ferryd ends, or what hosts have answered does not do.
  void give_up();
  // `goes_on`: as it was meant; else nothing comes of it.
  void decided(bool goes_on);

  bool is_decided() const { return is_decided_; }

 private:
  enum class State : std::uint8_t { kDue, kTelling, kDeciding, kGivingUp, kOver };

  void tell();
  void go_on();

  const Course course_;
  const std::size_t hosts_;
  State state_ = State::kDue;
  std::size_t at_ = 0;  // steps that are taken
  CourseStep step_;
  bool is_decided_ = false, has_given_up_ = false;
  std::set<std::size_t> awaited_, failed_;
};

}  // namespace ferry::host
