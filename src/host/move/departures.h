#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/move/former_move.h"
#include "host/move/move.h"
#include "host/move/source_side.h"

namespace ferry::host {

// What leaves this host, or has left it: the moves that this ferryd leads, and those that a former
// one has led, or that began as somebody else's checkpoint.
class Departures {
 public:
  explicit Departures(const SourceSide& side) : side_(side) {}

  // From the check to the report. `user` asked for it. Throws Failure.
  v1::GroupReport move(uid_t user, std::vector<MoveGroup::Program> programs, const std::string& to,
                       const MoveOptions& options, const Move::Progress& progress);
  // What is left of a move, by the journal; `tree`: its stand-ins, where they are there already.
  void take_up(std::uint64_t move_id, const Journal::Entry& entry,
               std::unique_ptr<StoppedTree> tree = nullptr);

  // Of a move that is over: the stand-ins of origins that are kept for the lives of their RNICs.
  void keep_origins(std::uint64_t move_id, const Journal::Entry& entry) const;

  std::shared_ptr<Move> find(std::uint64_t move_id) const;          // null: none
  std::shared_ptr<FormerMove> former(std::uint64_t move_id) const;  // null: none
  // Those that are undecided.
  std::shared_ptr<Move> move_of_root(pid_t root) const;
  std::shared_ptr<Move> move_of_process(pid_t pid) const;
  // A former ferryd has stopped it.
  bool was_stopped_before(pid_t pid) const;
  // It may be one that a former ferryd has not taken its sockets from.
  void registered(pid_t pid) const;
  std::vector<std::shared_ptr<Move>> moves() const;
  std::vector<std::shared_ptr<FormerMove>> formers() const;

  // Forgets those that are over.
  void keep_house();

 private:
  const SourceSide side_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Move>> moves_;
  std::map<std::uint64_t, std::shared_ptr<FormerMove>> formers_;
};

}  // namespace ferry::host
