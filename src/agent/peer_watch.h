#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "agent/protocol.h"
#include "agent/registry.h"

// Finds out after a resume which peers have acknowledged it, so that the stand-in at the old place
// can forget them (PEERS_KNOW).
namespace ferry::agent {

class PeerWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // Between quiesce() and resume(): remembers which QPs will have to tell a peer.
  void stopped(Registry& registry);
  // The QPs go on, and have begun to tell.
  void resumed(std::uint64_t move_id);
  bool active() const { return active_; }
  // True: something changed since the last look that gave true, and *out tells it. The last message
  // of a move comes kSettle after all peers know, with the retransmissions that the resume caused.
  bool look(Registry& registry, PeersKnow* out);

  // Time until the next look: the longer the last look took, the longer, because a look at thousands of QPs keeps the
  // engine from the program.
  std::chrono::milliseconds interval() const { return interval_; }

  static constexpr std::chrono::milliseconds kInterval{2};
  static constexpr int kLookShare = 16;  // looks take one part in 16 of the time at most
  static constexpr std::chrono::milliseconds kSettle{50};

 private:
  std::vector<std::uint32_t> waiting_;  // sorted
  std::uint64_t move_id_ = 0;
  std::uint64_t retransmitted_before_ = 0;
  std::chrono::milliseconds interval_ = kInterval;
  bool active_ = false;
  bool told_ = false;
  bool all_know_ = false;
  Clock::time_point all_know_since_{};
};

}  // namespace ferry::agent
