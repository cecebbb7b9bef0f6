#pragma once

#include <cstdint>

#include "transport/types.h"

// How long a standard RoCEv2 NIC waits for a QP that is Stopped, and how its requests are answered
// meanwhile (docs/standard_peers.md). What it waits is its own affair (clauses 9.7.5.2.8, 9.9.2.4.2
// and 9.7.6.1.3) and is not on the wire.
namespace ferry::transport {

// Attributes of the peer's QP, as ibv_qp_attr has them.
struct PeerRetries {
  std::uint8_t timeout = 14;     // code, 5 bits: 4.096 us * 2^timeout, 0 = waits for ever
  std::uint8_t retry_count = 7;  // 3 bits
  std::uint8_t rnr_retry = 7;    // 3 bits, 7 = for ever
  // They were agreed on over the CM (clause 12.6). Else they are assumed: those of our own QP, for
  // both ends of a connection are mostly the same program.
  bool known = false;
};

// What its requests get.
struct StoppedTreatment {
  bool answers = true;         // RNR NAK; false: nothing
  std::uint8_t rnr_timer = 0;  // code, 5 bits
  // From its first request on; kNever: for ever.
  Time patience = kNever;
};

// RNR NAKs when rnr_retry of them last at least as long as the peer endures silence, else silence.
// The timer is the longest, 655 ms, unless it is known that they are counted not at all: then
// 20 ms, since a NIC that waits for its RNR timer cannot be woken.
StoppedTreatment treatment_of(const PeerRetries& peer);

// How long it repeats a request that nobody answers, at least; kNever: for ever.
Time patience_in_silence(const PeerRetries& peer);

}  // namespace ferry::transport
