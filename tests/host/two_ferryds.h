#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "ferry.pb.h"
#include "ferryd_here.h"
#include "played_process.h"

namespace ferry::test {

// The only move in the history of a ferryd, when it has ended.
inline v1::PastMove past(const FerrydHere& ferryd) {
  EXPECT_TRUE(eventually([&] { return ferryd.history.under_way().empty(); }));
  const auto reply = ferryd.daemon->history(0, {});
  EXPECT_EQ(reply.moves_size(), 1);
  return reply.moves_size() == 1 ? reply.moves(0) : v1::PastMove();
}

// Two ferryds, each with a kind of unit that a test plays, and a program at the first of them.
// `Kind` is made with its ferryd, which it has as `ferryd`; start() starts the program's process, and
// kProgram is its name.
template <typename Kind>
struct TwoFerryds : testing::Test {
  FerrydHere here{"here"}, there{"there"};
  Kind at_home{here}, abroad{there};

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    for (auto* kind : {&at_home, &abroad}) {
      FerrydHere& ferryd = kind->ferryd;
      ferryd.host.limits.peers = std::chrono::milliseconds(1);
      ferryd.units.emplace(ferryd.host.name, std::vector<UnitKind*>{kind, &ferryd.processes},
                           ferryd.history);
    }
    at_home.start();
    ASSERT_TRUE(eventually([&] { return here.control->processes().size() == 1; }));
  }
  void TearDown() override {
    // Their threads use what is played.
    here.stop();
    there.stop();
  }
  v1::GroupReport move() {
    return here.daemon->move(0, {Kind::kProgram}, there.host.address, {}, [](const auto&) {});
  }
};

}  // namespace ferry::test
