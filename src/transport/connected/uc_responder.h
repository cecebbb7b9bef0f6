#pragma once

#include "transport/streams/error_state.h"
#include "transport/streams/receive_stream.h"
#include "transport/types.h"
#include "wire/header.h"

namespace ferry::transport {

// The responder of UC (IBTA vol. 1 clauses 9.8.2, 9.9.3). It drops a message silently if packets of
// it are missing or malformed, if there is no receive WQE for it, or if its keys are wrong; then it
// goes on with the next message that begins. The receive WQE of a dropped message serves the next
// (class E). If the WQE itself is wrong (too short, memory that cannot be written), the QP goes to
// ERROR.
class UcResponder {
 public:
  UcResponder(ReceiveStream& stream, ErrorState& errors) : stream_(stream), errors_(errors) {}

  void handle(const wire::Packet& packet);

 private:
  // False: the message is to be dropped.
  bool receive_send(const wire::Packet& packet);
  bool receive_write(const wire::Packet& packet);
  bool take_receive();
  void message_done(const wire::Packet& packet);
  void drop_message();
  void fail_receive(Status status);  // completes the WQE in use with `status`; enters ERROR
  Host& host() { return stream_.qp.path.host; }
  Counters& counters() { return stream_.qp.path.counters; }

  ReceiveStream& stream_;
  ErrorState& errors_;
};

}  // namespace ferry::transport
