#pragma once

#include <cstdint>

#include "transport/migration_timers.h"
#include "transport/streams/flight.h"
#include "transport/streams/receive_stream.h"
#include "transport/streams/responses.h"
#include "transport/streams/send_stream.h"
#include "transport/types.h"

namespace ferry::transport {

// Takes a QP to ERROR (clause 10.3.1.6). Requester, completer, responder and migration call it; it
// knows none of them, only the state that they work on.
class ErrorState {
 public:
  // RC and XRC.
  ErrorState(Flight& flight, ReceiveStream& receives, Responses& responses, MigrationTimers& timers)
      : sends_(flight),
        flight_(&flight),
        receives_(receives),
        responses_(&responses),
        timers_(timers) {}
  // UC, which has nothing in flight and owes nothing.
  ErrorState(SendStream& sends, ReceiveStream& receives, MigrationTimers& timers)
      : sends_(sends), receives_(receives), timers_(timers) {}

  // Enters ERROR: the WQE `failed` of the send queue completes with `status`, all others with
  // kFlush.
  void fail(std::uint64_t failed, Status status);
  void flush_all();  // enters ERROR: all WQEs complete with kFlush
  // Completes the oldest WQEs that are local operations and were carried out. Enters ERROR if the
  // oldest WQE after them has a local_error.
  void settle();

 private:
  SendStream& sends_;
  Flight* flight_ = nullptr;  // sends_ of RC and XRC; null: UC
  ReceiveStream& receives_;
  Responses* responses_ = nullptr;
  MigrationTimers& timers_;
};

}  // namespace ferry::transport
