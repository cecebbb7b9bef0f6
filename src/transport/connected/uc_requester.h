#pragma once

#include "transport/streams/send_stream.h"
#include "transport/types.h"

namespace ferry::transport {

// The requester of UC (IBTA vol. 1 clause 9.8.1): a request is complete when it has been sent.
// Nothing is acknowledged, so there are no windows and no timers. `una` is the first PSN of the
// message that is being sent: if a stop of either side interrupts it, it is sent again from there.
class UcRequester {
 public:
  explicit UcRequester(SendStream& stream) : stream_(stream) {}

  bool sendable() const;
  // Sends at most `budget` packets and local operations, and returns their number.
  unsigned transmit(unsigned budget);

 private:
  void settle();
  // Enters SQE: the oldest WQE completes with `status`, the others with kFlush (clause 10.3.1.5).
  void stop(Status status);

  SendStream& stream_;
};

}  // namespace ferry::transport
