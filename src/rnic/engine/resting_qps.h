#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "rnic/engine/lanes.h"

// A stop that does not look at every QP. Ahead of it, while the program runs, the stand-in's
// entries of QPs that are idle are written: these *rest* from then on. One that is touched before
// the stop is restless again, and is stopped, written and resumed by itself. The others are Stopped
// in name, with their RNIC; what a stop and a resume do to them is made up for when they are
// touched, or in turn while the program goes on. So both take as long as the QPs that are in use
// need.
namespace ferry::rnic {

class QueuePair;

// Under the engine's lock.
class RestingQps {
 public:
  using Entry = std::vector<std::byte>;

  // Until end() each of these, and of those that are added, rests or is restless: restless at
  // first.
  void begin(const std::vector<QueuePair*>& all);
  // Of the next `count` that were not looked at since, those that can rest do. False: none is left.
  bool settle(unsigned count, const Lanes& lanes);
  // Null outside of begin() and end(): nobody knows.
  const std::vector<QueuePair*>* restless() const { return known_ ? &restless_ : nullptr; }
  std::vector<Entry> take_entries(std::size_t lane);
  void end();
  // After end(): one that rests still, each once; null: none is left.
  QueuePair* next();

  void added(QueuePair* qp);
  void removed(QueuePair* qp);
  void disturbed(QueuePair* qp);  // it rested; it is restless now

 private:
  struct Row {
    std::vector<QueuePair*> qps;  // null: does not rest any more
    std::vector<Entry> entries;   // of these, until they are taken
  };
  void leave(QueuePair* qp);

  bool known_ = false;
  std::vector<QueuePair*> restless_;
  std::size_t unseen_ = 0;        // the first ones of restless_
  std::array<Row, kLanes> rows_;  // by lane
  std::size_t next_row_ = 0, next_ = 0;
};

}  // namespace ferry::rnic
