#pragma once

#include <cstdint>

#include "transport/types.h"

// How long a standard RoCEv2 NIC waits for a QP that is Stopped, and how its requests are answered
// meanwhile (docs/standard_peers.md). Attributes of its own QP decide how long it waits (clauses
// 9.7.5.2.8, 9.9.2.4.2 and 9.7.6.1.3), and they are not on the wire.
namespace ferry::transport {

// Attributes of the peer's QP, as ibv_qp_attr has them.
struct PeerRetries {
  std::uint8_t timeout = 14;     // code, 5 bits: 4.096 us * 2^timeout, 0 = waits for ever
  std::uint8_t retry_count = 7;  // 3 bits
  std::uint8_t rnr_retry = 7;    // 3 bits, 7 = for ever
  // True: they were agreed on over the CM (clause 12.6). False: they are assumed to be those of our
  // own QP, since both ends of a connection are mostly the same program.
  bool known = false;
};

// How the peer's requests are treated.
struct StoppedTreatment {
  bool answers = true;         // with RNR NAKs; false: not at all
  std::uint8_t rnr_timer = 0;  // code, 5 bits
  // How long the peer waits at least, from its first request on; kNever: for ever.
  Time patience = kNever;
};

// The peer gets RNR NAKs if rnr_retry of them last at least as long as it endures silence, else no
// answer. The RNR timer is the longest, 655 ms, unless the peer is known not to count RNR NAKs:
// then it is 20 ms, since a NIC that waits for its RNR timer cannot be woken.
StoppedTreatment treatment_of(const PeerRetries& peer);

// How long the peer repeats a request that nobody answers, at least; kNever: for ever.
Time patience_in_silence(const PeerRetries& peer);

}  // namespace ferry::transport
