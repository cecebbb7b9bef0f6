#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/streams/credits.h"
#include "transport/streams/send_stream.h"
#include "transport/streams/tail_probe.h"
#include "transport/types.h"
#include "wire/psn.h"

namespace ferry::transport {

// The most bytes of one QP in flight.
inline constexpr std::int64_t kMaxWindow = 16 << 20;

// The ends of the requests in flight that a response will answer (requests, not WQEs), oldest
// first. There are at most max_rd_atomic, which is mostly far below its maximum of 255.
class RdAtomicsInFlight {
 public:
  void reserve(std::size_t most) { ends_.reserve(most); }
  void push(std::uint64_t end_psn) { ends_.push_back(end_psn); }
  void answered_before(std::uint64_t psn) {
    const auto later =
        std::find_if(ends_.begin(), ends_.end(), [psn](std::uint64_t end) { return end > psn; });
    ends_.erase(ends_.begin(), later);
  }
  void clear() { ends_.clear(); }
  unsigned count() const { return static_cast<unsigned>(ends_.size()); }

 private:
  std::vector<std::uint64_t> ends_;
};

// The part of a reliable stream that is under way (clauses 9.7.6, 9.7.7): how many bytes of the
// window it takes, and when the requester asks for its acknowledgement or sends it again.
struct Flight : SendStream {
  using SendStream::SendStream;
  ~Flight() { land(); }
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  std::uint8_t retries_left = 0, rnr_retries_left = 0;
  unsigned since_ack_request = 0;  // packets
  RdAtomicsInFlight rd_atomics;
  SendCredits credits;
  Time nak_costs_from{};             // a sequence NAK before this time costs no retry
  std::uint64_t implied_nak_at = 0;  // `una` of the last go-back for lost READ responses
  Time ack_at = kNever;
  Time rnr_until = kNever;  // the end of the wait after an RNR NAK
  TailProbe probe;
  std::int64_t in_flight = 0;  // bytes of [una, next), as accounted at the Host
  std::int64_t window = 0;
  std::int64_t threshold = 0;  // below it the window doubles per round trip
  std::uint64_t recover = 0;   // losses before this PSN have reduced the window already

  void start(Time now);  // begins at the PSN and with the limits of RTS
  void set_limits();     // takes the limits of RTS
  std::uint64_t extend(std::uint32_t psn) const {
    return una + static_cast<std::int64_t>(
                     wire::psn_diff(psn, static_cast<std::uint32_t>(una & wire::kPsnMask)));
  }
  // Accounts a packet of this cost that was sent.
  void depart(std::int64_t bytes) {
    in_flight += bytes;
    qp.path.account(bytes);
  }
  // [una, end) of the oldest WQE was answered.
  void release(const Wqe& wqe, std::uint64_t end);
  void progress(Time now);  // restores retry counts, restarts the timers
  void loss(bool timeout);  // reduces the window, without `timeout` once per flight
  void go_back();           // goes back to una; nothing is in flight after it
  void cancel();            // goes back, stops the timers, restores retry counts
  void give_up();           // stops the timers for good; nothing is in flight after it
  Time ack_deadline(Time now) const;
  void ask_now();
  // Whether the peer was not asked to acknowledge the last packets that are under way.
  bool is_unasked() const { return probe.delay != kNever && std::max(una, probe.asked_end) < next; }

 private:
  void land();  // accounts that nothing is in flight any more
};

}  // namespace ferry::transport
