#pragma once

#include "rnic/engine/qp/queue_pair.h"

namespace ferry::rnic {

// A queue of QPs, first in, first out. It links them by their member kNext, which no one else uses
// while they are in it.
template <QueuePair* QueuePair::*kNext>
class QpQueue {
 public:
  bool empty() const { return head_ == nullptr; }
  void push(QueuePair* qp) {
    qp->*kNext = nullptr;
    (tail_ != nullptr ? tail_->*kNext : head_) = qp;
    tail_ = qp;
  }
  // Takes the first QP off; null: the queue is empty.
  QueuePair* pop() {
    QueuePair* qp = head_;
    if (qp == nullptr) return nullptr;
    head_ = qp->*kNext;
    if (head_ == nullptr) tail_ = nullptr;
    return qp;
  }
  // False: the QP is not in the queue.
  bool remove(QueuePair* qp) {
    QueuePair* previous = nullptr;
    for (QueuePair* at = head_; at != nullptr; previous = at, at = at->*kNext) {
      if (at != qp) continue;
      (previous != nullptr ? previous->*kNext : head_) = at->*kNext;
      if (tail_ == qp) tail_ = previous;
      return true;
    }
    return false;
  }

 private:
  QueuePair* head_ = nullptr;
  QueuePair* tail_ = nullptr;
};

}  // namespace ferry::rnic
