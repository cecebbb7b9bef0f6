#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/limits.h"
#include "host/journal/decision_log.h"
#include "host/move/arrival_machine.h"

namespace ferry::host {

class Arrival;
class KeptPeers;

// The arrivals of programs that move as one: drives their ArrivalMachine, and does what that asks
// for. There is one record for all of them. A program that arrives alone is a group of one.
class ArrivalGroup {
 public:
  using Action = ArrivalMachine::Action;
  using Event = ArrivalMachine::Event;
  using State = ArrivalMachine::State;
  using Lock = std::unique_lock<std::mutex>;

  // The ferryd that sends the programs.
  struct Source {
    std::string address;  // address:port
    std::string name;     // in its certificate; empty with --insecure
  };
  static Source source_in(const std::string& peer);  // of NAME@ADDRESS

  // `stopping`: this ferryd ends. `peers`: to ask the source.
  ArrivalGroup(DecisionLog& decisions, const std::atomic<bool>& stopping, KeptPeers& peers,
               Source source, ArrivalMachine machine);

  static ArrivalMachine::Time now();

  // Throws Failure unless it is what the source says of it.
  void need(std::size_t programs, const std::string& from) const;

  // The arrival has made room. Throws Failure when the group is aborted already.
  void join(Arrival& arrival);
  // The same of an arrival that a former ferryd has committed: connects it.
  void take_up(Arrival& arrival);
  void leave(Arrival& arrival);

  // The source has promised, or an operator says so. kUnknown only when this ferryd ends; `reason`
  // gets one line for kAborted.
  Answer commit(std::string* reason);
  // Does nothing once committed; what came of it. After kAborted nothing is left of any of them.
  Answer abort(const std::string& reason);
  // A program of it cannot go on. As abort(), and returns at once: keep_house() undoes.
  void lost(const std::string& reason);
  // Carries out what is due by itself, and asks the source for a decision that is late.
  void keep_house();

  // With the lock, of this one of the programs.
  State state(std::size_t program) const { return machine_.state(program); }
  Action next(std::size_t program) { return machine_.next(program); }
  // False: the group has been decided otherwise.
  bool happened(std::size_t program, Event event);
  // Returns when it is here or to be undone; or when this ferryd ends before it knows.
  void wait_until_settled(Lock& lock, std::size_t program);
  const DestinationDecision& decision() const { return machine_.decision(); }

  bool in_doubt() const;

  // What the arrivals share with it.
  mutable std::mutex mutex;
  std::condition_variable changed;

 private:
  Written write(Decision decision, std::string* error);
  void advance(Lock& lock);
  void record(Lock& lock, ArrivalMachine::Step step);
  bool carry_out(Lock& lock);
  void ask_source(Lock& lock);
  std::vector<Arrival*> arrivals() const;

  DecisionLog& decisions_;
  const std::atomic<bool>& stopping_;
  KeptPeers& peers_;
  const Source source_;
  // All that follows is read and changed with the mutex.
  ArrivalMachine machine_;
  std::vector<Arrival*> arrivals_;
  std::string failure_;  // the first reason why it is aborted
};

}  // namespace ferry::host
