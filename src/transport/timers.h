#pragma once

#include <cstdint>

#include "transport/types.h"

// The encoded times of the specification.
namespace ferry::transport {

// `delay` from now; kNever stays kNever.
inline Time deadline(Time now, Time delay) {
  return delay == kNever ? kNever : now + delay;
}

// RNR timer field (IBTA vol. 1 table 45): 5-bit code to the time that a requester waits at least.
Time rnr_delay(std::uint8_t code);

// Local ACK timeout (clause 9.7.6.1.3): 4.096 us * 2^code, 0 = kNever. Codes below 8 (1 ms) are
// taken as 8: the specification sets no lower bound, and a peer whose engine is a thread of a
// program may be off its CPU for that long. After `repeated` timeouts without progress twice, then
// four times as long, as far as the specification lets a timer run, but beyond 0.27 s only if the
// code asks for it: a loss is mended soon, and a peer that a busy machine keeps from its CPU for
// half a second is not given up.
Time ack_timeout(std::uint8_t code, unsigned repeated = 0);

}  // namespace ferry::transport
