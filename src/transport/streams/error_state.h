#pragma once

#include <cstdint>

#include "transport/migration_timers.h"
#include "transport/streams/flight.h"
#include "transport/streams/receive_stream.h"
#include "transport/streams/responses.h"
#include "transport/streams/send_stream.h"
#include "transport/types.h"

namespace ferry::transport {

// How a QP goes to ERROR (clause 10.3.1.6). Requester, completer, responder and migration call it;
// it knows none of them, only the state that they work on.
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

  // The oldest WQE before `failed` completes with kFlush, `failed` with `status`, the others with
  // kFlush.
  void fail(std::uint64_t failed, Status status);
  void flush_all();
  // Completes local operations that were carried out, and fails if sending the oldest WQE did.
  void settle();

 private:
  SendStream& sends_;
  Flight* flight_ = nullptr;  // sends_, if it is one
  ReceiveStream& receives_;
  Responses* responses_ = nullptr;
  MigrationTimers& timers_;
};

}  // namespace ferry::transport
