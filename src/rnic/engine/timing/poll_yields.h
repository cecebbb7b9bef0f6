#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "transport/types.h"

namespace ferry::rnic {

// Decides when a program that polls in vain leaves its core for a moment. What it waits for may
// need that core: a peer on the same machine, or the process that moves the program. A poll takes
// about half a microsecond, so one yield in kRarely polls does not delay answers that come at the
// speed of a network. Where somebody did want the core, such as the other ranks of an MPI job with
// more ranks than cores, every poll in vain yields for a while.
//
// Beside programs that only compute, every yield costs a time slice or several. After two such
// yields in a row the program keeps its core for a while before it yields again, since answers may
// come from another core meanwhile; and when it is away for so long, the progress thread takes its
// packets. One such yield alone is no sign of such programs: a rank of the same job may compute for
// once.
//
// Several threads of the program may poll. The counts that they overwrite for each other do no
// harm.
class PollYields {
 public:
  static constexpr std::uint32_t kRarely = 32;  // polls in vain, in a row
  static constexpr std::uint32_t kShared = 64;  // polls in vain that each yield, for a while
  // A yield that takes longer has let somebody else run.
  static constexpr transport::Time kOwn = std::chrono::microseconds(5);
  // A thread whose yield takes longer may have ended in it.
  static constexpr transport::Time kLongest = std::chrono::milliseconds(20);
  // A yield that takes longer has cost somebody's time slice.
  static constexpr transport::Time kSlice = std::chrono::milliseconds(1);
  // How long the program keeps its core beside programs that compute: about a time slice of Linux.
  static constexpr transport::Time kKept = std::chrono::milliseconds(3);

  // The program has polled. True: it should yield now.
  bool due(bool in_vain, transport::Time now) {
    if (!in_vain) {
      idle_.store(0, std::memory_order_relaxed);
      return false;
    }
    if (now < kept_until_.load(std::memory_order_relaxed)) return false;
    const std::uint32_t idle = idle_.load(std::memory_order_relaxed) + 1;
    idle_.store(idle, std::memory_order_relaxed);
    return idle % kRarely == kRarely - 1 || shared_.load(std::memory_order_relaxed) > 0;
  }
  void begins(transport::Time now) { since_.store(now, std::memory_order_relaxed); }
  void ended(transport::Time now) {
    const transport::Time away = now - since_.exchange(kHere, std::memory_order_relaxed);
    back_.store(now, std::memory_order_relaxed);
    const bool slice = away > kSlice;
    if (slice_.exchange(slice, std::memory_order_relaxed) && slice) {
      kept_until_.store(now + kKept, std::memory_order_relaxed);
    }
    const std::uint32_t shared = shared_.load(std::memory_order_relaxed);
    if (away > kOwn) {
      shared_.store(kShared, std::memory_order_relaxed);
    } else if (shared > 0) {
      shared_.store(shared - 1, std::memory_order_relaxed);
    }
  }

  // Whether the program is in a yield and waits for a core: it polls as soon as it has one, which
  // is soon.
  bool away(transport::Time now) const {
    const transport::Time since = since_.load(std::memory_order_relaxed);
    const transport::Time most = slice_.load(std::memory_order_relaxed) ? kSlice : kLongest;
    return since != kHere && now - since < most;
  }
  // When the program came back from its last yield.
  transport::Time back() const { return back_.load(std::memory_order_relaxed); }

 private:
  static constexpr transport::Time kHere = transport::kNever;
  std::atomic<std::uint32_t> idle_{0}, shared_{0};
  std::atomic<transport::Time> since_{kHere}, back_{transport::Time{0}};
  std::atomic<bool> slice_{false};  // the last yield cost a time slice
  std::atomic<transport::Time> kept_until_{transport::Time{0}};
};

}  // namespace ferry::rnic
