#pragma once

#include <cstdint>

#include "transport/types.h"

// The encoded times of the specification.
namespace ferry::transport {

// RNR timer field (IBTA vol. 1 table 45): 5-bit code to the time that a requester waits at least.
Time rnr_delay(std::uint8_t code);

// Local ACK timeout (clause 9.7.6.1.3): 4.096 us * 2^code, 0 = kNever. Codes below 8 (1 ms) are
// taken as 8: the specification lets a timer run up to four times longer and sets no lower bound,
// and a peer whose engine is a thread of a program may be off its CPU for that long.
Time ack_timeout(std::uint8_t code);

}  // namespace ferry::transport
