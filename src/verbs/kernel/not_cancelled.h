#pragma once

#include <pthread.h>

namespace ferry::verbs {

// While a NotCancelled lives, this thread is not cancelled, since it may hold locks of rdma_cm.
class NotCancelled {
 public:
  NotCancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_); }
  ~NotCancelled() { ::pthread_setcancelstate(state_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

 private:
  int state_ = 0;
};

}  // namespace ferry::verbs
