#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "host/move/several/move_part.h"
#include "host/peers/messages.h"

namespace ferry::host {

struct ThisHost;

// Leads the move of programs of several hosts to one: all, or none. The hosts take the steps of MovePart side by side,
// and none begins the next one before all have ended the last. When one fails before finish(), all are given up. After
// that the decision is between each host and the destination (docs/protocol.md).
class SeveralMove {
 public:
  using Parts = std::vector<std::unique_ptr<MovePart>>;

  SeveralMove(const ThisHost& host, Parts parts);

  // Only looks whether they could move. Throws Failure, one line for all that could not.
  v1::GroupPlan plan();
  // Throws Failure; NotMoved, when all programs go on where they were.
  v1::GroupReport run();

  // The user gives up the move that has a program with this id. False: it is not this one.
  bool give_up(std::uint64_t move_id);

 private:
  struct Member {
    MovePart* part;
    MovePart::Look look;
  };

  void look();
  Others others(const MovePart* part) const;
  std::string names() const;
  std::size_t programs() const;
  v1::GroupReport finish();
  void await_ends(const std::function<void(MovePart&)>& finish);
  void end_all();
  [[noreturn]] void fail(const std::string& reason);

  const ThisHost& host_;
  Parts parts_;
  std::vector<Member> members_;  // from look() on, in the order of the parts
  std::uint64_t id_ = 0;
  std::mutex mutex_;
  std::set<std::uint64_t> move_ids_;  // with the mutex
  std::atomic<bool> is_given_up_{false};
};

// Those that this ferryd leads now.
class SeveralMoves {
 public:
  // Of this one, as long as it lives.
  class Entry {
   public:
    Entry(SeveralMoves& all, SeveralMove& move);
    ~Entry();
    Entry(const Entry&) = delete;

   private:
    SeveralMoves& all_;
    SeveralMove& move_;
  };
  bool give_up(std::uint64_t move_id);

 private:
  std::mutex mutex_;
  std::set<SeveralMove*> moves_;
};

}  // namespace ferry::host
