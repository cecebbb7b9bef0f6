#pragma once

#include <cstdint>

#include "transport/streams/error_state.h"
#include "transport/streams/flight.h"
#include "transport/types.h"
#include "wire/header.h"

namespace ferry::transport {

// The completer: acknowledgements and responses in, completions of the send queue out (IBTA
// vol. 1 clauses 9.7.5.2, 9.7.7).
class Completer {
 public:
  Completer(Flight& flight, ErrorState& errors) : flight_(flight), errors_(errors) {}

  void handle_ack(const wire::Packet& packet, Time now);
  void handle_response(const wire::Packet& packet, Time now);
  // The peer expects this PSN next, and has answered nothing after it: everything before it has
  // arrived; unfinished READs before it are asked for again under the PSNs they had.
  void go_back_to_peer(std::uint32_t expected_psn, Time now);

 private:
  void handle_rnr_nak(const wire::Aeth& aeth, std::uint64_t psn, Time now);
  void handle_sequence_nak(std::uint64_t psn, Time now);
  void handle_fatal_nak(Status status, std::uint64_t psn);
  // Everything before `end` but what waits for a response; false: that is in the way.
  bool acknowledge(std::uint64_t end);
  void complete_head();  // and the local operations that waited for it
  void lost_response();  // an acknowledgement came past an unanswered READ or atomic

  Flight& flight_;
  ErrorState& errors_;
};

}  // namespace ferry::transport
