#include "transport/peer_retries.h"

#include "transport/timers.h"

namespace ferry::transport {
namespace {

constexpr std::uint8_t kForEver = 7;         // rnr_retry
constexpr std::uint8_t kLongestTimer = 0;    // 655.36 ms
constexpr std::uint8_t kWatchfulTimer = 22;  // 20.48 ms

}  // namespace

// The peer waits for one timeout after the first transmission and after each repetition; a timeout
// lasts between one and four times its value (clause 9.9.2.4.2).
Time patience_in_silence(const PeerRetries& peer) {
  const Time timeout = ack_timeout(peer.timeout);
  return timeout == kNever ? kNever : timeout * (peer.retry_count + 1);
}

StoppedTreatment treatment_of(const PeerRetries& peer) {
  if (peer.rnr_retry == kForEver) {
    return {true, peer.known ? kWatchfulTimer : kLongestTimer, kNever};
  }
  const Time answered = rnr_delay(kLongestTimer) * peer.rnr_retry;
  const Time silent = patience_in_silence(peer);
  if (answered < silent) return {false, kLongestTimer, silent};
  return {true, kLongestTimer, answered};
}

}  // namespace ferry::transport
