#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "transport/timers.h"
#include "transport/types.h"

// Finds out when a flight may have lost its tail. The responder does not report a loss behind which
// nothing arrives, nor one that it has reported once already (clause 9.7.5.1.3). So the requester
// sends a probe long before the local ACK timeout (the idea of RFC 8985, section 7). A probe is a
// retransmission, as any requester may send at any time.
namespace ferry::transport {

struct TailProbe {
  // The shortest `delay`: a process may be off its CPU for long without any loss. A probe that was
  // not needed costs one packet.
  static constexpr Time kMin = std::chrono::milliseconds(1);
  // The most probes of one flight without progress; then the local ACK timeout takes over.
  static constexpr unsigned kMost = 2;

  // One request of a flight is timed from its first transmission on (RFC 6298).
  std::uint64_t timed_end = 0;  // it is answered when all before this PSN is; 0: none is timed
  Time timed_at{};
  Time round_trip{}, deviation{};
  Time delay = kNever;  // time without progress until a probe; kNever: nothing was measured yet

  std::uint64_t asked_end = 0;  // the peer was asked to acknowledge all before this PSN
  Time at = kNever;             // when the next probe is due
  std::uint64_t quiet_end = 0;  // end of the last message that does not ask for an acknowledgement
  std::uint64_t next = 0;       // everything before this PSN was sent before the last probe
  unsigned sent = 0;            // probes since the last progress
  bool answered = false;        // there was progress since the last probe, but not up to `next`
  bool quiet = false;           // only messages that do not ask wait for the time `at`
  bool due = false;             // the next transmit() sends a probe

  void time(std::uint64_t end, Time now) {
    timed_end = end;
    timed_at = now;
  }

  // A packet was sent that the peer must answer. Only then its silence means anything: the packets
  // of a message that a slow sender has sent so far get no answer before the rest.
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
  // Whether such a message has waited so long that the next one asks.
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

  // Everything before `una` is acknowledged now.
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

  // The flight ends: it is sent again, or given up. Measured times stay.
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
