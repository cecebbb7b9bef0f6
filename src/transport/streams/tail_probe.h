#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "transport/timers.h"
#include "transport/types.h"

// When a flight may have lost its tail: nobody reports a loss behind which nothing arrives, nor one
// that was reported once already (clause 9.7.5.1.3), so that the requester asks by itself, long
// before the local ACK timeout (the idea of RFC 8985, section 7). What it sends is a
// retransmission, as any requester may send at any time.
namespace ferry::transport {

struct TailProbe {
  // A process may be off its CPU for long without any loss; a probe costs it one packet.
  static constexpr Time kMin = std::chrono::milliseconds(1);
  // Of one flight, until there is progress. After them the local ACK timeout has its turn.
  static constexpr unsigned kMost = 2;

  // One request of a flight is timed from its first sending on (RFC 6298).
  std::uint64_t timed_end = 0;  // answered when all before this PSN is; 0: none is timed
  Time timed_at{};
  Time round_trip{}, deviation{};
  Time delay = kNever;  // without progress until a probe; kNever: nothing was measured yet

  std::uint64_t asked_end = 0;  // the peer was asked to acknowledge all before this PSN
  Time at = kNever;
  std::uint64_t quiet_end = 0;  // the last message that it was not asked about ends here
  std::uint64_t next = 0;       // everything before this PSN was sent before the last probe
  unsigned sent = 0;            // since the last progress
  bool answered = false;        // there was progress since, but not up to `next`
  bool quiet = false;           // `at` is of such messages
  bool due = false;             // to be sent at the next transmit()

  void time(std::uint64_t end, Time now) {
    timed_end = end;
    timed_at = now;
  }

  // A packet was sent that the peer answers: only then its silence says anything. What a slow
  // sender has sent of a message until now waits for the rest.
  void asked(std::uint64_t end, Time now) {
    asked_end = end;
    if (delay == kNever || (at != kNever && !quiet)) return;
    at = now + delay;
    quiet = false;
  }

  // A message was sent that the peer need not acknowledge by itself.
  void left_quiet(std::uint64_t end, Time now, Time timeout) {
    quiet_end = end;
    if (at != kNever) return;
    at = now + std::min(delay, timeout);
    quiet = true;
  }
  // Such a message has waited for so long that the next one asks.
  bool is_late(Time now) const { return quiet && now >= at - delay / 4; }

  void measured(Time sample) {
    if (delay == kNever) {
      round_trip = sample;
      deviation = sample / 2;
    } else {
      deviation += (std::chrono::abs(sample - round_trip) - deviation) / 4;
      round_trip += (sample - round_trip) / 8;
    }
    delay = std::max(kMin, round_trip + 4 * deviation);
  }

  // Something was acknowledged: all before `una` is.
  void progress(std::uint64_t una, Time now) {
    if (timed_end != 0 && una >= timed_end) {
      measured(now - timed_at);
      timed_end = 0;
    }
    due = false;
    sent = 0;
    answered = una < next;
    quiet = asked_end <= una;
    at = una < std::max(asked_end, quiet_end) ? deadline(now, delay) : kNever;
  }

  // The flight ends: it is sent again, or given up. What was measured stays.
  void cancel() {
    timed_end = 0;
    asked_end = 0;
    quiet_end = 0;
    at = kNever;
    quiet = false;
    due = false;
    sent = 0;
    next = 0;
    answered = false;
  }
};

}  // namespace ferry::transport
