#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "host/journal/decision_log.h"
#include "host/move/move_machine.h"
#include "host/peers/peer.h"
#include "host/units/unit.h"

namespace ferry::host {

// The programs of one `ferry move`, which move all or none: drives their MoveMachine, and does what
// that asks for all of them. A program that moves alone is a group of one. Their moves (move.h) run
// side by side, each in two threads; these take here what the machine wants of their program.
class MoveGroup {
 public:
  using Action = MoveMachine::Action;
  using Event = MoveMachine::Event;

  // Who carries out an action.
  enum class Worker : std::uint8_t {
    kMove,  // the thread of the program's move, which waits while CRIU dumps
    kDump,  // the call of CRIU's post-dump action script: transfer, restore, leave
  };

  struct Program {
    std::uint64_t move_id = 0;
    std::shared_ptr<const Unit> unit;
    std::vector<FerryProcess> processes;
  };

  // `standstill`: the most that a program may be under CRIU before it is promised. `stopping`: this
  // ferryd ends. `credentials`: none: nothing is checked. Throws Failure when `to` is no host.
  MoveGroup(DecisionLog& decisions, Limits::Time standstill, const std::atomic<bool>& stopping,
            const Credentials* credentials, std::vector<Program> programs, const std::string& to);

  const std::vector<Program>& programs() const { return programs_; }
  std::uint64_t id() const { return programs_.front().move_id; }
  bool is_alone() const { return programs_.size() == 1; }
  Peer& peer() { return peer_; }

  // The next action of this worker for this one of the programs, waiting for it; meanwhile it
  // decides for the group when that is due. kNone: there is none to come, or this ferryd ends
  // before the group is decided.
  Action next(std::size_t program, Worker worker);
  // Throws Failure when it does not happen in the program's state: another has failed.
  void happened(std::size_t program, Event event);
  // Something failed at this one of the programs. Too late once the promise is on record. Of the
  // program that was the first to fail the first reason is kept.
  void failed(std::size_t program, const std::string& reason);
  // Nobody asks here any more where it has gone; waits until it has.
  void unneeded(std::size_t program);
  // Its standstill may be over, and then it fails for that.
  void time_passed(std::size_t program);
  // Throws Failure when something has failed.
  void need_open() const;

  // False when this ferryd ends before it is decided.
  bool wait_until_decided() const;
  bool undecided() const;
  bool committed() const;
  std::chrono::steady_clock::time_point decided_at() const;
  // The source has promised and cannot reach the destination.
  bool in_doubt() const;
  // For a destination that asks.
  Answer answer() const;
  // An operator's word on a group in doubt: the destination will not go on. Throws Failure.
  void resolve_abort();
  // Why it is aborted, in one line.
  std::string failure() const;
  // It is back here, or nobody asks here any more where it has gone.
  bool is_over(std::size_t program) const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  static MoveMachine::Time now();
  const SourceDecision& decision() const { return machine_.decision(); }
  void note_failure(std::size_t program, const std::string& reason);
  void decide(Lock& lock, MoveMachine::Step step);
  void record_promise(Lock& lock);
  void ask(Lock& lock, MoveMachine::Step step);
  DecisionLog::Record record(Decision decision) const;
  bool leave_addresses(std::string* error) const;
  void publish_moved() const;

  DecisionLog& decisions_;
  const Limits::Time standstill_;
  const std::atomic<bool>& stopping_;
  const std::vector<Program> programs_;
  Peer peer_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  MoveMachine machine_;
  std::optional<std::size_t> culprit_;
  std::string failure_;
  std::string refusal_;  // why what decides for all has failed
  bool in_doubt_ = false;
  std::chrono::steady_clock::time_point decided_at_;
};

// "'a'", "'a' and 'b'", "'a', 'b' and 'c'".
std::string names_of(const std::vector<MoveGroup::Program>& programs);

}  // namespace ferry::host
