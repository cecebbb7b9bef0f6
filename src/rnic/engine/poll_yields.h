#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "transport/types.h"

namespace ferry::rnic {

// When a program that polls in vain leaves its core for a moment. What it waits for may need that
// core: a peer on the same machine, or the process that moves it. A poll takes about half a
// microsecond, so answers that come at the speed of a network are not delayed by one yield in
// kRarely. Where somebody did want the core, such as the other ranks of an MPI job with more ranks
// than cores, every poll in vain yields for a while.
//
// Beside programs that only compute, every yield costs a time slice or several. After two such
// yields, one behind the other, the program keeps its core for a while before it yields again, since
// answers may come from another core meanwhile; and the progress thread takes its packets when it is
// away for so long. One such yield is no sign of them: a rank of the same job may compute for once.
//
// Several threads of the program may poll. Counts that they lose to each other do no harm.
class PollYields {
 public:
  static constexpr std::uint32_t kRarely = 32;  // polls in vain, one behind the other
  static constexpr std::uint32_t kShared = 64;
  // A yield that takes longer has let somebody else run.
  static constexpr transport::Time kOwn = std::chrono::microseconds(5);
  // A thread that is away for longer may have ended there.
  static constexpr transport::Time kLongest = std::chrono::milliseconds(20);
  // A yield that takes longer has cost somebody's time slice.
  static constexpr transport::Time kSlice = std::chrono::milliseconds(1);
  // So long the program keeps its core beside programs that compute: about a slice of Linux's.
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

  // The program is between two polls and waits for a core: it will poll as soon as it has one, which
  // is soon.
  bool away(transport::Time now) const {
    const transport::Time since = since_.load(std::memory_order_relaxed);
    const transport::Time most = slice_.load(std::memory_order_relaxed) ? kSlice : kLongest;
    return since != kHere && now - since < most;
  }
  // When it came back from the last one.
  transport::Time back() const { return back_.load(std::memory_order_relaxed); }

 private:
  static constexpr transport::Time kHere = transport::kNever;
  std::atomic<std::uint32_t> idle_{0}, shared_{0};
  std::atomic<transport::Time> since_{kHere}, back_{transport::Time{0}};
  std::atomic<bool> slice_{false};  // the last yield cost one
  std::atomic<transport::Time> kept_until_{transport::Time{0}};
};

}  // namespace ferry::rnic
