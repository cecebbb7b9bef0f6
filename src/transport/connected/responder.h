#pragma once

#include <cstdint>

#include "transport/streams/error_state.h"
#include "transport/streams/receive_stream.h"
#include "transport/streams/responses.h"
#include "transport/types.h"
#include "wire/header.h"

namespace ferry::transport {

// The responder takes requests, accesses memory and completes receive WQEs (IBTA vol. 1 clauses
// 9.7.4, 9.7.5.1, 9.9.3). It puts its answers into `responses`.
class Responder {
 public:
  Responder(ReceiveStream& stream, Responses& responses, ErrorState& errors)
      : stream_(stream), responses_(responses), errors_(errors) {}

  void handle(const wire::Packet& packet);
  // Sends at most `budget` response packets, and returns their number.
  unsigned transmit(unsigned budget);

 private:
  void handle_duplicate(const wire::Packet& packet);
  void handle_send(const wire::Packet& packet);
  void handle_write(const wire::Packet& packet);
  void handle_read(const wire::Packet& packet);
  void handle_atomic(const wire::Packet& packet);
  void handle_atomic_write(const wire::Packet& packet);
  void handle_flush(const wire::Packet& packet);
  bool take_receive(const wire::Packet& packet);  // false: RNR NAK, or the request was refused
  bool responder_resource();  // false: all are in use, and the request was refused
  void received(const wire::Packet& packet);
  void message_done(const wire::Packet& packet);
  // Gives a fatal NAK and takes the QP to ERROR. The receive WQE of the message completes with
  // `status`; without one, an asynchronous event is raised.
  void refuse(std::uint8_t syndrome, std::uint32_t psn, Status status);
  Host& host() { return stream_.qp.path.host; }
  Counters& counters() { return stream_.qp.path.counters; }

  ReceiveStream& stream_;
  Responses& responses_;
  ErrorState& errors_;
};

}  // namespace ferry::transport
