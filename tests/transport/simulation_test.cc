#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "transport/pair.h"

// FERRY_SEED=n replays one seed of each test, FERRY_SEEDS=n sets how many are run.
namespace ferry::transport::test {
namespace {

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

Pair::Totals run_seeds(const PairOptions& options, std::uint64_t count, const char* test) {
  Pair::Totals sum;
  const std::uint64_t only = number("FERRY_SEED", 0);
  const std::uint64_t first = only ? only : number("FERRY_FIRST_SEED", 1);
  const std::uint64_t last = only ? only : first + number("FERRY_SEEDS", count) - 1;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    Pair pair(seed, options);
    const std::string failure = pair.run();
    if (!failure.empty()) {
      ADD_FAILURE() << failure << "\n  " << pair.describe() << "\n  replay: FERRY_SEED=" << seed
                    << " bin/transport_simulation_test --gtest_filter='*." << test << "'";
      break;
    }
    const Pair::Totals& t = pair.totals();
    sum.packets += t.packets;
    sum.messages += t.messages;
    sum.moves += t.moves;
    sum.rollbacks += t.rollbacks;
    sum.both_stopped += t.both_stopped;
    sum.atomics += t.atomics;
    sum.atomic_requests += t.atomic_requests;
    sum.retransmitted += t.retransmitted;
    sum.naks_stopped += t.naks_stopped;
    sum.moved += t.moved;
    sum.unacked_at_stop += t.unacked_at_stop;
    sum.quiet_tails += t.quiet_tails;
  }
  std::cout << "  " << sum.messages << " messages, " << sum.packets << " packets ("
            << sum.retransmitted << " again), " << sum.atomics << " atomics ("
            << sum.atomic_requests << " requests), " << sum.moves << " moves, " << sum.rollbacks
            << " rollbacks, " << sum.both_stopped << " with both stopped, " << sum.unacked_at_stop
            << " stops with PSNs unacknowledged, " << sum.naks_stopped << " NAK_STOPPED, "
            << sum.moved << " MOVED, " << sum.quiet_tails << " behind the last completion\n";
  return sum;
}

bool replaying() {
  return number("FERRY_SEED", 0) != 0;
}

TEST(Simulation, NobodyMoves) {
  run_seeds({.moves = false}, 600, "NobodyMoves");
}

TEST(Simulation, BothMove) {
  const Pair::Totals sum = run_seeds({}, 1500, "BothMove");
  if (replaying() || HasFailure()) return;
  // The schedules reach what they are for.
  EXPECT_GT(sum.moves, 0u);
  EXPECT_GT(sum.rollbacks, 0u);
  EXPECT_GT(sum.both_stopped, 0u);
  EXPECT_GT(sum.unacked_at_stop, 0u);
  EXPECT_GT(sum.naks_stopped, 0u);
  EXPECT_GT(sum.moved, 0u);
  EXPECT_GT(sum.atomic_requests, sum.atomics);
  EXPECT_GT(sum.quiet_tails, 0u);
}

TEST(Simulation, XrcMoves) {
  const Pair::Totals sum = run_seeds({.xrc = true}, 500, "XrcMoves");
  if (replaying() || HasFailure()) return;
  EXPECT_GT(sum.moves, 0u);
  EXPECT_GT(sum.atomic_requests, sum.atomics);
}

TEST(Simulation, XrcUnmodifiedPeer) {
  run_seeds({.unmodified_peer = true, .xrc = true}, 200, "XrcUnmodifiedPeer");
}

TEST(Simulation, UnmodifiedPeer) {
  run_seeds({.unmodified_peer = true}, 600, "UnmodifiedPeer");
}

// RNR NAKs of 20 ms, and none at all: the peer's own timer repeats.
TEST(Simulation, UnmodifiedPeerThatWaitsForEver) {
  run_seeds({.unmodified_peer = true, .told = PeerRetries{14, 7, 7, true}}, 200,
            "UnmodifiedPeerThatWaitsForEver");
}

TEST(Simulation, UnmodifiedPeerThatGetsNoRnrNak) {
  run_seeds({.unmodified_peer = true, .told = PeerRetries{14, 7, 0, true}}, 200,
            "UnmodifiedPeerThatGetsNoRnrNak");
}

// The guard: a NAK acknowledges everything before its PSN.
TEST(Simulation, AnRnrNakOfAnotherPsnThanTheRequestsIsFoundOut) {
  bool found = false;
  for (std::uint64_t seed = 1; seed <= 200 && !found; ++seed) {
    found = !Pair(seed, {.unmodified_peer = true, .nak_acknowledges_too_much = true}).run().empty();
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace ferry::transport::test
