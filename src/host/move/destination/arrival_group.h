#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/limits.h"
#include "host/journal/decision_log.h"
#include "host/move/machine/arrival_machine.h"
#include "host/peers/peer_record.h"

namespace ferry::host {

class Arrival;
class KeptPeers;

// The arrivals of programs that move as one: drives their ArrivalMachine, and carries out the steps
// that it gives for all of them. All of them have one record. A program that arrives alone is a
// group of one.
class ArrivalGroup {
 public:
  using Action = ArrivalMachine::Action;
  using Event = ArrivalMachine::Event;
  using State = ArrivalMachine::State;
  using Lock = std::unique_lock<std::mutex>;

  // `stopping`: this ferryd ends. `peers`: to ask the source.
  ArrivalGroup(DecisionLog& decisions, const std::atomic<bool>& stopping, KeptPeers& peers,
               PeerRecord source, ArrivalMachine machine);

  static ArrivalMachine::Time now();

  bool has_source() const { return machine_.has_source(); }
  // Throws Failure unless the group has that many programs, and `from` is the name of its source.
  void need(std::size_t programs, const std::string& from) const;

  // The arrival has made room. Throws Failure when the group is aborted already.
  void join(Arrival& arrival);
  // As join(), for an arrival that a former ferryd has committed: connects it.
  void take_up(Arrival& arrival);
  void leave(Arrival& arrival);

  // The source has promised, or an operator says so. kUnknown only when this ferryd ends; `reason`
  // gets one line for kAborted.
  Answer commit(std::string* reason);
  // Does nothing once committed; gives the decision. After kAborted nothing of any of the programs
  // is left.
  Answer abort(const std::string& reason);
  // A program of the group cannot go on. As abort(), but returns at once: keep_house() undoes.
  void lost(const std::string& reason);
  // Carries out what is due by itself, and asks the source for a decision that is late.
  void keep_house();

  // These three are called with the lock, for one of the programs.
  State state(std::size_t program) const { return machine_.state(program); }
  Action next(std::size_t program) { return machine_.next(program); }
  // Why the group is aborted, if it is: the first reason.
  std::string failure() const { return failure_.empty() ? "the move was aborted" : failure_; }
  // False: the group has been decided otherwise.
  bool happened(std::size_t program, Event event);
  // Returns when the program is here, or is to be undone, or when this ferryd ends before it is
  // decided. False: it is held, and nothing is decided, for longer than `patience`.
  bool wait_until_settled(Lock& lock, std::size_t program,
                          std::chrono::milliseconds patience = std::chrono::hours(24 * 365));
  const DestinationDecision& decision() const { return machine_.decision(); }

  bool in_doubt() const;
  const PeerRecord& source() const { return source_; }  // the ferryd that sends the programs

  // The arrivals use these too.
  mutable std::mutex mutex;
  std::condition_variable changed;

 private:
  void fail(const std::string& reason);
  Written write(Decision decision, std::string* error);
  void advance(Lock& lock);
  void record(Lock& lock, ArrivalMachine::Step step);
  bool carry_out(Lock& lock);
  void ask_source(Lock& lock);
  std::vector<Arrival*> arrivals() const;

  DecisionLog& decisions_;
  const std::atomic<bool>& stopping_;
  KeptPeers& peers_;
  const PeerRecord source_;
  // The mutex guards all that follows.
  ArrivalMachine machine_;
  std::vector<Arrival*> arrivals_;
  std::string failure_;  // the first reason why the group is aborted
};

}  // namespace ferry::host
