#pragma once

#include "transport/streams/error_state.h"
#include "transport/streams/receive_stream.h"
#include "transport/types.h"
#include "wire/header.h"

namespace ferry::transport {

// The responder of UC (IBTA vol. 1 clauses 9.8.2, 9.9.3): a message that is not whole, that nobody
// posted a receive WQE for, or whose keys are wrong, is dropped without a word; the next one that
// begins is taken again. The receive WQE of a dropped message serves the next (class E). What is
// wrong with the WQE itself ends in the error state.
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
  void fail_receive(Status status);  // the WQE in use completes so; ERROR
  Host& host() { return stream_.qp.path.host; }
  Counters& counters() { return stream_.qp.path.counters; }

  ReceiveStream& stream_;
  ErrorState& errors_;
};

}  // namespace ferry::transport
