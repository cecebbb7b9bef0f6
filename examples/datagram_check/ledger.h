// What one direction sent and what arrived of it: an unreliable service may lose messages, so the
// question is which ones, and when they were sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace datagram_check {

// Arrivals by sequence, at the receiving side.
class Arrivals {
 public:
  void add(uint64_t sequence);
  // One saturating count per sequence, as the sending side needs it.
  const std::vector<uint8_t>& counts() const { return counts_; }
  // How many sequences there are of which one has arrived at least.
  uint64_t received() const { return received_; }

 private:
  std::vector<uint8_t> counts_;
  uint64_t received_ = 0;
};

struct LostRange {
  uint64_t first = 0, last = 0;  // sequences, both lost
  // CLOCK_REALTIME. The first had been sent by then, and the last no earlier: what lost them was
  // at work all the time between, however long the sender was kept from its processor.
  int64_t first_sent_ns = 0, last_sent_ns = 0;
};

// When a message was sent: between these. CLOCK_REALTIME.
struct Sending {
  int64_t began_ns = 0, ended_ns = 0;
};

struct Judgement {
  uint64_t sent = 0, received = 0, lost = 0, duplicated = 0;
  uint64_t unsent = 0;  // arrived although never sent
  std::vector<LostRange> ranges;
};

// `sendings`: of each message; `counts`: the peer's Arrivals. Losses that are at most
// `join` messages apart are one range: around a move single messages get through.
Judgement judge(const std::vector<Sending>& sendings, const std::vector<uint8_t>& counts,
                uint64_t join);

}  // namespace datagram_check
