#pragma once

#include <sys/types.h>

#include <atomic>
#include <future>
#include <string>
#include <vector>

#include "host/move/several/move_part.h"
#include "host/move/source/departures.h"

namespace ferry::host {

// The programs of this host. They move as any group does (Departures), in a thread of its own, and wait where all
// programs of a group wait for each other for those of other hosts too.
class LocalMovePart final : public MovePart {
 public:
  // `user` asked for the move; `host`: the name of this one. `programs`: none, if no program of a job can move.
  LocalMovePart(const std::string& host, Departures& departures, uid_t user,
                std::vector<MoveGroup::Program> programs, std::string to, MoveOptions options,
                Move::Progress progress);
  ~LocalMovePart() override;

  Look look() override;
  v1::GroupPlan plan(const Others& others) override;
  void check(const Others& others) override;
  void prepare() override;
  void copy() override;
  void suspend() override;
  v1::GroupReport finish() override;
  void stop_waiting() override {}  // it ends by itself when this ferryd does
  void end() override;
  void give_up() override;
  // Who leads the move is not there any more.
  void leader_is_gone();

 private:
  MoveGroup& group() const;  // throws Failure before check()
  void need_own(const Others& others) const;
  void meet(MoveGroup::Meeting meeting);

  const std::string host_;
  Departures& departures_;
  const uid_t user_;
  const std::vector<MoveGroup::Program> programs_;
  const std::string to_;
  MoveOptions options_;
  const Move::Progress progress_;
  Departures::Moves moves_;  // from check() on
  std::atomic<bool> has_begun_{false}, is_on_its_own_{false};
  std::future<v1::GroupReport> run_;
};

}  // namespace ferry::host
