#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/limits.h"
#include "host/journal/decision_log.h"
#include "host/move/machine/move_machine.h"
#include "host/move/source/group/others.h"
#include "host/peers/peer.h"
#include "host/units/unit.h"

namespace ferry::host {

// The programs of one `ferry move`, which move all or none: drives their MoveMachine, and carries
// out the steps that it gives for all of them. A program that moves alone is a group of one. The
// moves (move.h) of the programs run side by side, each in two threads, which take the machine's
// actions for their program here.
class MoveGroup {
 public:
  using Action = MoveMachine::Action;
  using Event = MoveMachine::Event;
  using State = MoveMachine::State;

  // Which thread carries out an action.
  enum class Worker : std::uint8_t {
    kMove,  // the thread of the program's move, which waits while CRIU dumps
    kDump,  // the call of CRIU's post-dump action script: transfer, restore, leave
  };

  struct Program {
    std::uint64_t move_id = 0;
    std::shared_ptr<const Unit> unit;
    std::vector<FerryProcess>
        processes;  // none: it uses no RDMA, and is stored with others that do
  };

  // `standstill`: the most that a program may be under CRIU before it is promised. `stopping`: this
  // ferryd ends. `credentials`: null: certificates are not checked. `others`: none: all programs that
  // move are of this host. Throws Failure when `to` is no host.
  MoveGroup(DecisionLog& decisions, Limits::Time standstill, const std::atomic<bool>& stopping,
            const Credentials* credentials, std::vector<Program> programs, const std::string& to,
            std::optional<Others> others = {});

  const std::vector<Program>& programs() const { return programs_; }
  const std::optional<Others>& others() const { return others_; }
  std::uint64_t id() const { return others_ ? others_->group : programs_.front().move_id; }
  bool is_alone() const { return programs_.size() == 1 && !others_; }
  Peer& peer() { return peer_; }
  // How many of its programs' memories are being copied ahead.
  std::atomic<unsigned>& copying() { return copying_; }

  // Waits for the next action of this worker for this program, and gives it; meanwhile it decides
  // for the group when that is due. kNone: no more actions come, or this ferryd ends before the
  // group is decided.
  Action next(std::size_t program, Worker worker);
  // Throws Failure when the event does not happen in the program's state: another program has
  // failed.
  void happened(std::size_t program, Event event);
  // The peers of this program are suspended. Returns when those of all programs, of all hosts, are: one that has
  // stopped answers no suspension, and may itself be a peer. Throws Failure: something has failed, or
  // `limit` is over.
  void await_suspensions(std::size_t program, std::chrono::milliseconds limit);
  // Something failed at this program. Too late once the promise is on record. The reason that is
  // kept is the first one of the program that was the first to fail.
  void failed(std::size_t program, const std::string& reason);
  // The user gives the move up. False: it is too late.
  bool give_up(std::size_t program);
  // Nobody asks here any more where the program has gone; waits until it has gone.
  void unneeded(std::size_t program);
  // The standstill of this program may be over: then the group fails for that.
  void time_passed(std::size_t program);
  // Throws Failure when something has failed.
  void need_open() const;

  // --- where programs of other hosts move with these: for who leads the move of all
  // Where those of this host wait for the others.
  enum class Meeting : std::uint8_t { kChecked, kPrepared, kCopied, kSuspended };
  // Returns when they do. False: the group is decided, or this ferryd ends.
  bool await_meeting(Meeting meeting) const;
  // The others are as far.
  void others_came();
  // The others do not move. Without effect once the promise is on record.
  void others_failed();

  // False when this ferryd ends before the group is decided.
  bool wait_until_decided() const;
  bool undecided() const;
  bool committed() const;
  std::chrono::steady_clock::time_point decided_at() const;
  // The source has promised and cannot reach the destination.
  bool in_doubt() const;
  // For a destination that asks.
  Answer answer() const;
  // An operator says of a group in doubt that the destination will not go on. Throws Failure.
  void resolve_abort();
  // Why the group is aborted, in one line.
  std::string failure() const;
  // In which step of the program that was the first to fail, as users know the steps; empty: none
  // has failed.
  std::string failed_step() const;
  // Its user or an operator has given the group up.
  bool is_given_up() const;
  // The program is back here; or it has gone, and nobody asks here any more where.
  bool is_over(std::size_t program) const;

 private:
  std::atomic<unsigned> copying_{0};
  using Lock = std::unique_lock<std::mutex>;
  static MoveMachine::Time now();
  const SourceDecision& decision() const { return machine_.decision(); }
  void note_failure(std::size_t program, State state, const std::string& reason);
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
  const std::optional<Others> others_;
  Peer peer_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  MoveMachine machine_;
  std::set<std::size_t> suspended_;
  bool are_others_suspended_ = false;
  std::optional<std::size_t> culprit_;
  State failed_in_ = State::kChecking;  // the culprit's, when it failed
  bool is_given_up_ = false;
  std::string failure_;
  std::string refusal_;  // why the record or the question that decides for all has failed
  bool in_doubt_ = false;
  std::chrono::steady_clock::time_point decided_at_;
};

// "'a'", "'a' and 'b'", "'a', 'b' and 'c'".
std::string names_of(const std::vector<MoveGroup::Program>& programs);

}  // namespace ferry::host
