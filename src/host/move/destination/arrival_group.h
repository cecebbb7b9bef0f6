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

  // A host from which programs of the group come: the first so many of those that are left.
  struct Source {
    std::string host;  // its name, as all sources tell it
    std::size_t programs = 0;
    PeerRecord ferryd;  // no address: it has not prepared anything yet
  };

  // `stopping`: this ferryd ends. `peers`: to ask the sources, of which `machine` has as many.
  ArrivalGroup(DecisionLog& decisions, const std::atomic<bool>& stopping, KeptPeers& peers,
               std::vector<Source> sources, ArrivalMachine machine);

  static ArrivalMachine::Time now();

  bool has_source() const { return machine_.has_source(); }
  // Throws Failure unless these are the sources of the group; takes the address of the one that has this program.
  void need(const std::vector<Source>& sources, std::size_t program);

  // The arrival has made room. Throws Failure when the group is aborted already.
  void join(Arrival& arrival);
  // As join(), for an arrival that a former ferryd has committed: connects it.
  void take_up(Arrival& arrival);
  void leave(Arrival& arrival);

  // The source of this program has promised. kUnknown when this ferryd ends, or when other sources have not promised
  // within a moment; `reason` gets one line for kAborted.
  Answer commit(std::size_t program, std::string* reason);
  // An operator says that the programs will go on nowhere else. As commit().
  Answer commit_by_operator(std::string* reason);
  // Does nothing once committed; gives the decision. After kAborted nothing of any of the programs
  // is left.
  Answer abort(const std::string& reason);
  // A program of the group cannot go on. As abort(), but returns at once: keep_house() undoes.
  void lost(const std::string& reason);
  // Carries out what is due by itself, and asks the source for a decision that is late.
  void keep_house();

  // These are called with the lock, for one of the programs.
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
  // Some of the programs that come from other hosts are not held yet. Their sources wait for each other: none may
  // promise before all is held.
  bool awaits_others() const {
    return sources_.size() > 1 && decision().state() == DestinationDecision::State::kOpen;
  }
  const DestinationDecision& decision() const { return machine_.decision(); }

  bool in_doubt() const;
  // The ferryd that sends this program, which has joined.
  const PeerRecord& source(std::size_t program) const {
    return sources_[source_of(program)].ferryd;
  }

  // The arrivals use these too.
  mutable std::mutex mutex;
  std::condition_variable changed;

 private:
  void fail(const std::string& reason);
  Written write(Decision decision, std::string* error);
  std::size_t source_of(std::size_t program) const;
  Answer answer_commit(Lock& lock, std::string* reason);
  void advance(Lock& lock);
  void record(Lock& lock, ArrivalMachine::Step step);
  bool carry_out(Lock& lock);
  std::optional<Answer> ask_source(Lock& lock, std::size_t source);
  std::vector<Arrival*> arrivals() const;

  DecisionLog& decisions_;
  const std::atomic<bool>& stopping_;
  KeptPeers& peers_;
  // The mutex guards all that follows.
  std::vector<Source> sources_;
  ArrivalMachine machine_;
  std::vector<Arrival*> arrivals_;
  std::string failure_;  // the first reason why the group is aborted
};

}  // namespace ferry::host
