#pragma once

#include <cstdint>

#include "rnic/engine/endpoints/lanes.h"
#include "rnic/engine/held_packets.h"
#include "rnic/engine/qp/queue_pair.h"
#include "rnic/engine/qp_queue.h"
#include "rnic/engine/timers.h"
#include "transport/types.h"

namespace ferry::rnic {

// Lets QPs send in turn. Touched QPs are served in the current pass. Waiting QPs have work that did
// not fit the window or the port, and a few of them are tried per pass. Used under the engine's
// lock.
class Scheduler {
 public:
  Scheduler(Lanes& lanes, Timers& timers, HeldPackets& held)
      : lanes_(lanes), timers_(timers), held_(held) {}

  // A QP that does not rest may have packets to send, and its deadline may have changed.
  void touch(QueuePair* qp) {
    if (qp->turn == Turn::kTouched) return;
    qp->turn = Turn::kTouched;
    touched_.push(qp);
  }
  void remove(QueuePair* qp);

  bool has_work() const { return !touched_.empty() || !waiting_.empty() || port_full_; }
  bool port_full() const { return port_full_; }
  // Lets touched QPs send until all are done, the ports are full or the windows closed; then
  // flushes. With `hold`, an acknowledgement waits for the answer that will follow at once, and its
  // QP stays touched.
  void transmit(transport::Time now, bool hold);

 private:
  // Lets one QP send; true when it did.
  bool serve(QueuePair* qp, transport::Time now);
  void flush();
  QueuePair* pop_touched();
  QueuePair* pop_waiting();
  void push_waiting(QueuePair* qp);

  Lanes& lanes_;
  Timers& timers_;
  HeldPackets& held_;
  QpQueue<&QueuePair::next_touched> touched_;
  QpQueue<&QueuePair::next_waiting> waiting_;
  std::uint32_t waiting_count_ = 0;
  bool port_full_ = false;
};

}  // namespace ferry::rnic
