#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "host/journal/decision.h"
#include "host/journal/decision_log.h"

namespace ferry::host {

class Arrival;

// The arrivals of programs that move as one, and how their destination decides (decision.h): one
// record for all of them. A program that arrives alone is a group of one.
class ArrivalGroup {
 public:
  // `stopping`: this ferryd ends. `from`: the source's name in its certificate.
  ArrivalGroup(DecisionLog& decisions, const std::atomic<bool>& stopping, std::size_t programs,
               std::string from)
      : decision(programs),
        decisions_(decisions),
        stopping_(stopping),
        programs_(programs),
        from_(std::move(from)) {}

  // Throws Failure unless it is what the source says of it.
  void need(std::size_t programs, const std::string& from) const;

  // While they are there. Throws Failure when the group is aborted already.
  void join(Arrival& arrival);
  void leave(Arrival& arrival);

  // The source has promised, or an operator says so. kUnknown only when this ferryd ends; `reason`
  // gets one line for kAborted.
  Answer commit(std::string* reason);
  // Does nothing once committed; what came of it. After kAborted nothing is left of any of them.
  Answer abort(const std::string& reason);
  // When this returns the group is decided, and what that means for the networks is done.
  void wait_until_decided(std::unique_lock<std::mutex>& lock);

  // What the arrivals share. All that follows is read and changed with the mutex.
  mutable std::mutex mutex;
  std::condition_variable changed;
  DestinationDecision decision;
  bool deciding = false;  // commit() is at work

 private:
  Written write(Decision decision, std::string* error);
  void undo(const std::string& reason);
  std::vector<Arrival*> arrivals() const;

  DecisionLog& decisions_;
  const std::atomic<bool>& stopping_;
  const std::size_t programs_;
  const std::string from_;
  std::vector<Arrival*> arrivals_;  // with the mutex
  std::once_flag undone_;
};

}  // namespace ferry::host
