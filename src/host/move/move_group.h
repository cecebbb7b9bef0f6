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

#include "host/journal/decision.h"
#include "host/journal/decision_log.h"
#include "host/peers/peer.h"
#include "host/units/unit.h"

namespace ferry::host {

// The programs of one `ferry move`, which move all or none, and how their source decides
// (decision.h). A program that moves alone is a group of one. Their moves (move.h) run side by
// side; each tells here how far it is.
class MoveGroup {
 public:
  struct Program {
    std::uint64_t move_id = 0;
    std::shared_ptr<const Unit> unit;
    std::vector<FerryProcess> processes;
  };

  // `stopping`: this ferryd ends. `credentials`: none: nothing is checked. Throws Failure when `to` is
  // no host.
  MoveGroup(DecisionLog& decisions, const std::atomic<bool>& stopping,
            const Credentials* credentials, std::vector<Program> programs, const std::string& to);

  const std::vector<Program>& programs() const { return programs_; }
  std::uint64_t id() const { return programs_.front().move_id; }
  bool is_alone() const { return programs_.size() == 1; }
  Peer& peer() { return peer_; }

  // Something failed at this one of the programs. Too late once the promise is on record. Of the
  // program that was the first to fail the first reason is kept.
  void failed(std::size_t program, const std::string& reason);
  // Throws Failure when that has happened.
  void need_open() const;
  // This one is held at the destination: returns when all are, and the group is decided. Answer to
  // CRIU's post-dump action: 0 committed, EAGAIN this ferryd ends before it is decided.
  int commit(std::size_t program);

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

 private:
  int decide(std::unique_lock<std::mutex>& lock);
  DecisionLog::Record record(Decision decision) const;
  bool leave_addresses(std::string* error) const;
  void publish_moved() const;

  DecisionLog& decisions_;
  const std::atomic<bool>& stopping_;
  const std::vector<Program> programs_;
  Peer peer_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  SourceDecision decision_;
  std::optional<std::size_t> culprit_;
  std::string failure_;
  bool in_doubt_ = false;
  std::chrono::steady_clock::time_point decided_at_;
};

// "'a'", "'a' and 'b'", "'a', 'b' and 'c'".
std::string names_of(const std::vector<MoveGroup::Program>& programs);

}  // namespace ferry::host
