#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <set>

#include "virtual/queues/queue_pair.h"
#include "virtual/shadows/device_behind.h"

namespace ferry::virt {

// Makes the QPs' objects of the device that a context has entered. Late QPs are those whose turn comes
// after the resume: nobody has used them, and their peers are suspended. One thread at a time calls these
// functions, and no QP goes meanwhile.
class LateQps {
 public:
  explicit LateQps(DeviceBehind& device) : device_(device) {}

  // The QP, late or not, gets its object. 0 or errno: then it has none.
  int make(Qp& qp);
  // The QP is late.
  void add(Qp& qp);
  // The QP has been made, or ends.
  void forget(Qp& qp);
  void clear();
  bool is_empty() const { return waiting_.empty(); }
  // Whether is(qp) of a late one.
  template <typename Is>
  bool any(Is is) const {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const Qp* qp) { return is(*qp); });
  }

  // Whose turn it is: of those for which the program has posted requests meanwhile, else of all, the
  // first one. Null: nobody's now.
  Qp* next();
  // The device has refused to make this one: no turn comes for a moment, and then that of another one.
  void refused(Qp& qp);

 private:
  DeviceBehind& device_;
  std::deque<Qp*> waiting_;
  std::set<Qp*> refused_;  // of these
  std::chrono::steady_clock::time_point resting_until_{};
};

}  // namespace ferry::virt
