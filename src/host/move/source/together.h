#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/failure.h"
#include "host/move/source/move.h"

namespace ferry::host {

// The programs go on where they were.
class NotMoved : public Failure {
 public:
  // `programs`: their names, in words.
  NotMoved(const std::string& programs, bool are_several, const std::string& reason);
  const std::string& reason() const { return reason_; }

 private:
  const std::string reason_;
};

// Runs the moves of a whole group, each to its end. Throws Failure when a program has moved and does not go on, or when
// this ferryd ends.
void run_together(const std::vector<std::shared_ptr<Move>>& moves, const Move::Progress& progress);
// Milliseconds from the first QP of the programs that has stopped to the last program that went on.
double standstill_of(const std::vector<std::shared_ptr<Move>>& moves);
// As run_together(), and gives the report of a move. When it throws Failure the message says where the programs are;
// NotMoved, when all of them go on where they were.
v1::GroupReport move_together(const std::string& host,
                              const std::vector<std::shared_ptr<Move>>& moves,
                              const Move::Progress& progress);

}  // namespace ferry::host
