#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "host/history/accounts.h"
#include "host/journal/journal.h"
#include "host/move/machine/move_machine.h"
#include "host/move/source/source_side.h"
#include "host/move/under_way.h"
#include "host/standin/stopped_tree.h"
#include "host/units/unit.h"

// The source's side, from the stop on, of a move that a former ferryd of this host led, as the
// journal has it. Its stand-ins answer again as soon as the object exists; then a thread of its own
// carries out the actions of MoveMachine::recovered():
//
//   kAskCommit ─ asks the destination until it answers, or an operator decides
//   kFollow ──── peers are told the way for what is left of the stand-ins' term, and those of
//                origins and the container's network are kept for the life of the RNICs
//   kReturn ──── the processes get their sockets when they ask (AWAKE)
namespace ferry::host {

class StandInTerm;

class FormerMove : public UnderWay {
 public:
  // `tree`: given when its stand-ins are there already (a checkpoint of this ferryd was restored).
  FormerMove(const SourceSide& side, std::uint64_t move_id, const Journal::Entry& entry,
             std::unique_ptr<StoppedTree> tree = nullptr);
  // ThisHost::stopping is set before.
  ~FormerMove() override;

  std::uint64_t move_id() const { return move_id_; }
  const std::string& program() const { return program_; }
  pid_t root() const { return held_.root; }

  // CRIU's actions. post-dump waits for the decision; EAGAIN when this ferryd ends.
  int action(const std::string& name, pid_t root) override;
  std::optional<ResumeSlots> wake(pid_t inner_pid) override { return tree_->wake(inner_pid); }
  // The process uses its sockets again, or has never let go of them.
  void resumed(pid_t inner_pid, const agent::Resumed&) override { tree_->resumed(inner_pid); }
  bool has_process(pid_t pid) const override { return tree_->has_process(pid); }
  bool is_checkpointed() const override { return unit_->is_checkpointed(); }
  void need_restorable() const override;
  int restored(pid_t pid) override;

  // For a destination that asks.
  Answer answer() const;
  // The move is promised, and its destination does not answer.
  bool in_doubt() const;
  // An operator says that the destination will not go on; that is on record already.
  void resolve_abort();
  bool is_over() const;
  // The program goes on here, and its processes have not all got back what they had.
  bool is_coming_back() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  void run();
  bool go_on(Lock& lock);
  void decide(Lock& lock, MoveMachine::Step step);
  void ask(Lock& lock);
  void depart();
  void follow();
  bool is_needed(const StandInTerm& term) const;
  void open_stand_ins(std::chrono::nanoseconds committed);
  void await_take(const StandInTerm& term);
  void hear_of_program(StandInTerm* term);
  void end_tree(std::chrono::nanoseconds limit);
  void join_network();
  bool rest();
  void roll_back();
  void bring_back();
  void finish();
  bool pause();
  MoveEnd failed_end() const;

  const SourceSide& side_;
  const ThisHost& host_;
  const std::uint64_t move_id_;
  const Journal::Entry entry_;
  const Held held_;
  const std::string program_;
  const std::shared_ptr<const Unit> unit_;
  std::shared_ptr<void> network_;  // used by the thread only
  std::set<port::Endpoint> kept_;  // by Origins
  bool has_complained_ = false;    // of sockets that cannot be opened
  const std::unique_ptr<StoppedTree> tree_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  MoveMachine machine_;
  bool in_doubt_ = false, over_ = false;
  bool is_resolved_ = false;  // an operator has decided
  std::string refusal_;       // of the destination, which was asked to commit: its name, and why
  std::chrono::steady_clock::time_point warned_;
  std::thread thread_;
};

}  // namespace ferry::host
