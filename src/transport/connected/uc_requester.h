#pragma once

#include "transport/streams/send_stream.h"
#include "transport/types.h"

namespace ferry::transport {

// The requester of UC (IBTA vol. 1 clause 9.8.1): a request is complete when it has been sent.
// Nothing is acknowledged, so there are no windows and no timers. `una` is where the message begins
// that is being sent: one that a stop of either side interrupts is sent again from there.
class UcRequester {
 public:
  explicit UcRequester(SendStream& stream) : stream_(stream) {}

  bool sendable() const;
  // At most `budget` packets and local operations; their number.
  unsigned transmit(unsigned budget);

 private:
  void settle();
  // SQE: the oldest WQE completes with `status`, the others with kFlush (clause 10.3.1.5).
  void stop(Status status);

  SendStream& stream_;
};

}  // namespace ferry::transport
