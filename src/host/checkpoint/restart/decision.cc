#include "host/checkpoint/restart/decision.h"

#include "base/failure.h"
#include "base/log.h"
#include "host/checkpoint/decided.h"
#include "host/peers/this_host.h"

namespace ferry::host {

RestartDecision::RestartDecision(const ThisHost& host, const std::string& directory,
                                 const std::string& id, std::uint64_t number)
    : host_(host), id_(id), verdict_(directory, id, number) {
  try {
    verdict_.open();
    is_open_ = true;
  } catch (const Failure& failure) {
    log::warn("{}; a host that loses this one during the restart gives it up by itself",
              failure.what());
  }
}

RestartDecision::~RestartDecision() {
  if (!is_open_ || goes_on_) return;
  try {
    verdict_.goes_on();
  } catch (const Failure& failure) {
    log::warn("{}; a host that has lost this one waits in the restart of checkpoint {}",
              failure.what(), id_);
  }
}

void RestartDecision::go_on() {
  if (!is_open_) return;
  try {
    goes_on_ = verdict_.go_on();
  } catch (const Failure&) {
    // It may be decided all the same.
    const std::string what = "the restart of checkpoint " + id_;
    goes_on_ = decided_in_store(host_, what, LeaderIs::kLost, [&] {
                 return verdict_.goes_on();
               }).value_or(false);
  }
  if (!goes_on_) throw Failure("a host has lost this one, and has given the restart up; try again");
}

void RestartDecision::all_know() {
  if (!is_open_) return;
  try {
    verdict_.forget();
  } catch (const Failure& failure) {
    log::warn("{}", failure.what());  // the next attempt takes it away
  }
}

}  // namespace ferry::host
