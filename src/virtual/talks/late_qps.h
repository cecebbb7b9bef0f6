#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <set>
#include <vector>

#include "virtual/queues/queue_pair.h"
#include "virtual/shadows/device_behind.h"

namespace ferry::virt {

// Makes the objects of QPs on the device that a context has entered. Late QPs get their objects after the
// resume: neither end has used them in the stop, or they had left before (idle_qps.cc), and their peers are
// suspended. One thread at a time calls these functions, and no QP is destroyed meanwhile.
class LateQps {
 public:
  explicit LateQps(DeviceBehind& device) : device_(device) {}

  // The QP, late or not, gets its object. 0 or errno: then it has none.
  int make(Qp& qp);
  // The same for all of these, by several threads where that pays. 0 or errno: then some have none.
  int make(const std::vector<Qp*>& qps);
  // The QP is late.
  void add(Qp& qp);
  // The QP has got its object, or was reset or destroyed: it is not late any more.
  void forget(Qp& qp);
  void clear();
  bool is_empty() const { return waiting_.empty(); }
  // Whether is(qp) is true of a late QP.
  template <typename Is>
  bool any(Is is) const {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const Qp* qp) { return is(*qp); });
  }

  // Gives the late QP to make next: the first one for which the program has posted requests meanwhile and
  // which the device has not refused, else the first of all. Null: no QP is to be made now.
  Qp* next();
  // The device has refused to make this QP: next() gives none for a moment, and other QPs before this one.
  void refused(Qp& qp);

 private:
  DeviceBehind& device_;
  std::deque<Qp*> waiting_;
  std::set<Qp*> refused_;  // those of waiting_ that the device has refused
  std::chrono::steady_clock::time_point resting_until_{};
};

}  // namespace ferry::virt
