#pragma once

#include <cstdint>

#include "transport/streams/error_state.h"
#include "transport/streams/flight.h"
#include "transport/streams/receive_stream.h"
#include "transport/streams/responses.h"
#include "transport/streams/send_stream.h"
#include "transport/types.h"
#include "wire/migration.h"

namespace ferry::transport {

// Both directions of a QP as its migration sees them, whatever its service is.
class Streams {
 public:
  // RC and XRC.
  Streams(Flight& flight, ReceiveStream& receives, Responses& responses, ErrorState& errors)
      : sends_(flight),
        receives_(receives),
        flight_(&flight),
        responses_(&responses),
        errors_(&errors) {}
  // UC: nothing is in flight, and what is lost leaves gaps.
  Streams(SendStream& sends, ReceiveStream& receives) : sends_(sends), receives_(receives) {}

  const SendStream& sends() const { return sends_; }
  const ReceiveStream& receives() const { return receives_; }

  // Stops the requester's timers, restores its retry counts and takes everything out of flight: the
  // requester begins again at the oldest PSN that is not acknowledged.
  void cancel_requests();
  void restore_retries();
  // Goes on from where the peer is (RESUME, RESUME_ACK).
  void go_back_to_peer(std::uint32_t expected_psn, Time now);
  // Whether both sides can have come as far as the PSNs in `message` say.
  bool possible(const wire::MigrationMessage& message) const;
  void forget_responses();
  // Sends another acknowledgement, since the peer may have missed the last one.
  void acknowledge_again();

 private:
  SendStream& sends_;
  ReceiveStream& receives_;
  Flight* flight_ = nullptr;
  Responses* responses_ = nullptr;
  ErrorState* errors_ = nullptr;
};

}  // namespace ferry::transport
