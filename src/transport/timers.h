#pragma once

#include <cstdint>

#include "transport/types.h"

// Decodes the times of the specification.
namespace ferry::transport {

// `delay` from now; kNever stays kNever.
inline Time deadline(Time now, Time delay) {
  return delay == kNever ? kNever : now + delay;
}

// The time that a requester waits at least for a 5-bit code of the RNR timer field (IBTA vol. 1
// table 45).
Time rnr_delay(std::uint8_t code);

// Local ACK timeout (clause 9.7.6.1.3): 4.096 us * 2^code, 0 = kNever. Codes below 8 (1 ms) are
// taken as 8: the specification sets no lower bound, and a peer whose engine is a thread of a
// program may be off its CPU for that long. `repeated` counts the timeouts without progress: after
// the first the next is twice as long, later ones four times, as the specification allows, but
// longer than 0.27 s only if the code asks for it. So a loss is repaired soon, and a peer that a
// busy machine keeps from its CPU for half a second is not given up.
Time ack_timeout(std::uint8_t code, unsigned repeated = 0);

}  // namespace ferry::transport
