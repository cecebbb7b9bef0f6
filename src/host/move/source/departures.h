#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/move/source/former_move.h"
#include "host/move/source/move.h"
#include "host/move/source/source_side.h"

namespace ferry::host {

// The programs that leave this host, or have left it: in moves that this ferryd leads (Move), and
// in those that a former ferryd led or that began as somebody else's checkpoint (FormerMove).
class Departures {
 public:
  explicit Departures(const SourceSide& side) : side_(side) {}

  using Moves = std::vector<std::shared_ptr<Move>>;

  // What the programs need at their destination.
  Weight weigh(uid_t user, std::vector<MoveGroup::Program> programs, const std::string& to,
               const MoveOptions& options) const;
  // Looks only whether the programs could move. Throws Failure, one line for all that could not.
  v1::GroupPlan plan(uid_t user, std::vector<MoveGroup::Program> programs, const std::string& to,
                     const MoveOptions& options) const;
  // A whole move, which run() carries out, from the check to the report. `user` asked for it. Throw Failure.
  Moves begin(uid_t user, std::vector<MoveGroup::Program> programs, const std::string& to,
              const MoveOptions& options);
  v1::GroupReport run(const Moves& moves, const Move::Progress& progress);
  // In place of run(): dumps the programs into `cut`, with which their moves were begun, to this ferryd itself. When it
  // throws Failure all of them go on. Gives how long they stood still, in milliseconds; 0 if they have ended.
  double checkpoint(const Moves& moves, const Cut& cut);
  // Goes on with a move as the journal has it. `tree`: its stand-ins, if this ferryd has them
  // already.
  void take_up(std::uint64_t move_id, const Journal::Entry& entry,
               std::unique_ptr<StoppedTree> tree = nullptr);

  // For a move that is over: opens the stand-ins at origins that are kept for the lives of their
  // RNICs.
  void keep_origins(std::uint64_t move_id, const Journal::Entry& entry) const;

  std::shared_ptr<Move> find(std::uint64_t move_id) const;          // null: none
  std::shared_ptr<FormerMove> former(std::uint64_t move_id) const;  // null: none
  // These two find moves that are undecided.
  std::shared_ptr<Move> move_of_root(pid_t root) const;
  std::shared_ptr<Move> move_of_process(pid_t pid) const;
  // A former ferryd has stopped the process.
  bool was_stopped_before(pid_t pid) const;
  // Tells the former moves of a process that has registered: it may be one from which a former
  // ferryd has not taken the sockets.
  void registered(pid_t pid) const;
  std::vector<std::shared_ptr<Move>> moves() const;
  std::vector<std::shared_ptr<FormerMove>> formers() const;

  // Forgets moves that are over.
  void keep_house();

 private:
  std::shared_ptr<MoveGroup> group_of(std::vector<MoveGroup::Program> programs,
                                      const std::string& to, const MoveOptions& options) const;
  void forget(const Moves& moves);

  const SourceSide side_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Move>> moves_;
  std::map<std::uint64_t, std::shared_ptr<FormerMove>> formers_;
};

}  // namespace ferry::host
