#pragma once

#include <cstdint>

#include "transport/streams/error_state.h"
#include "transport/streams/flight.h"
#include "transport/types.h"
#include "wire/header.h"

namespace ferry::transport {

// The completer takes acknowledgements and responses, and completes WQEs of the send queue (IBTA
// vol. 1 clauses 9.7.5.2, 9.7.7).
class Completer {
 public:
  Completer(Flight& flight, ErrorState& errors) : flight_(flight), errors_(errors) {}

  void handle_ack(const wire::Packet& packet, Time now);
  void handle_response(const wire::Packet& packet, Time now);
  // The peer expects this PSN next, and has answered nothing after it. Everything before it has
  // arrived; unfinished READs before it are asked for again under the PSNs they had.
  void go_back_to_peer(std::uint32_t expected_psn, Time now);

 private:
  void handle_rnr_nak(const wire::Aeth& aeth, std::uint64_t psn, Time now);
  void handle_sequence_nak(std::uint64_t psn, Time now);
  void handle_fatal_nak(Status status, std::uint64_t psn);
  // Acknowledges everything before `end`, up to the first WQE that waits for a response. False:
  // there is one.
  bool acknowledge(std::uint64_t end);
  void complete_head();  // completes the oldest WQE and the local operations that waited for it
  void lost_response();  // something after an unanswered READ or atomic was acknowledged

  Flight& flight_;
  ErrorState& errors_;
};

}  // namespace ferry::transport
