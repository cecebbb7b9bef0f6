#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "rnic/engine/endpoints/lanes.h"

// Resting QPs let a stop look only at the QPs that are in use. Ahead of the stop, while the program
// runs, the stand-in's entries of idle QPs are written: these QPs *rest* from then on. A QP that is
// touched before the stop is restless again, and is stopped, written and resumed by itself. The
// others are Stopped in name only, with their RNIC; what a stop and a resume do to a QP is made up
// for when it is touched, or in turn while the program goes on. So a stop and a resume take only as
// long as the QPs that are in use need.
namespace ferry::rnic {

class QueuePair;

// Used under the engine's lock.
class RestingQps {
 public:
  using Entry = std::vector<std::byte>;

  // From here until end() each QP of `all`, and each that is added, rests or is restless. All are
  // restless at first.
  void begin(const std::vector<QueuePair*>& all);
  // Looks at the next `count` QPs of begin(): those that can rest do so. False: none is left to
  // look at.
  bool settle(unsigned count, const Lanes& lanes);
  // The restless QPs. Null when not between begin() and end(): then it is not known which are.
  const std::vector<QueuePair*>* restless() const { return known_ ? &restless_ : nullptr; }
  // Takes the stand-in entries of the QPs of a lane that rest.
  std::vector<Entry> take_entries(std::size_t lane);
  void end();
  // After end(): the next QP that still rests; null: none is left.
  QueuePair* next();

  void added(QueuePair* qp);
  void removed(QueuePair* qp);
  void disturbed(QueuePair* qp);  // ends its rest: the QP is restless now

 private:
  struct Row {
    std::vector<QueuePair*> qps;  // null: it rests no more
    std::vector<Entry> entries;   // of these QPs, until they are taken
  };
  void leave(QueuePair* qp);

  bool known_ = false;
  std::vector<QueuePair*> restless_;
  std::size_t unseen_ = 0;        // so many at the front of restless_ were not looked at yet
  std::array<Row, kLanes> rows_;  // by lane
  std::size_t next_row_ = 0, next_ = 0;
};

}  // namespace ferry::rnic
