#pragma once

#include <cstdint>

#include "transport/streams/error_state.h"
#include "transport/streams/flight.h"
#include "transport/types.h"

namespace ferry::transport {

// The requester turns WQEs into request packets (IBTA vol. 1 clauses 9.7.2 to 9.7.4, 9.7.7), within
// the windows of PSNs, credits, responder resources and bytes, and sends lost packets again.
class Requester {
 public:
  Requester(Flight& flight, ErrorState& errors) : flight_(flight), errors_(errors) {}

  // Whether something may be sent now. kWindow: only the Host's window forbids it.
  enum class Sendable : std::uint8_t { kNo, kWindow, kYes };
  Sendable sendable() const {
    return flight_.all_begun() ? Sendable::kNo : sendable(flight_.qp.path.window());
  }
  // Whether the next packet has no room, or no credit, and waits for an acknowledgement for which
  // the peer was not asked. False behind a READ or an atomic, whose response makes room.
  bool is_starved() const { return flight_.is_unasked() && lacks_room(); }
  // Sends at most `budget` packets and local operations, and returns their number.
  unsigned transmit(Time now, unsigned budget) {
    return flight_.all_begun() ? 0 : transmit_requests(now, budget);
  }
  bool transmit_probe(Time now);  // false: nothing was sent
  void timeout(Time now);

 private:
  unsigned transmit_requests(Time now, unsigned budget);
  bool lacks_room() const;
  Sendable sendable(std::int64_t left) const;
  bool credits_allow(const Wqe& wqe, const RequestPacket& packet) const;
  // These two choose the packets that ask for an acknowledgement.
  bool interval_ends(std::int64_t left) const;
  bool may_be_quiet(const Wqe& wqe, Time now) const;
  void probe_timeout(Time now);
  bool transmit_query(Time now);

  Flight& flight_;
  ErrorState& errors_;
};

}  // namespace ferry::transport
