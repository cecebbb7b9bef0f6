#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/failure.h"
#include "ferry.pb.h"
#include "ferryd_here.h"
#include "host/peers/peer.h"
#include "played_machine.h"
#include "played_process.h"

// Programs of two hosts move to a third one: all, or none (src/host/move/several).
namespace ferry::host {
namespace {

using test::eventually;
using test::failure_of;
using test::FerrydHere;
using test::Machines;
using test::PlayedProcess;

class SeveralHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    for (auto* kind : {&at_here, &at_other, &at_there}) {
      FerrydHere& ferryd = kind->ferryd;
      ferryd.host.limits.peers = std::chrono::milliseconds(1);
      ferryd.units.emplace(ferryd.host.name, std::vector<UnitKind*>{kind, &ferryd.processes},
                           ferryd.history);
    }
    for (auto* kind : {&at_here, &at_other}) {
      kind->start();
      ASSERT_TRUE(eventually([&] { return kind->ferryd.control->processes().size() == 1; }));
    }
    request.add_from("here");
    request.add_from(other.host.address);
    request.add_programs("vm@here");
    request.add_programs("vm@" + other.host.address);
    request.set_to(there.host.address);
  }
  void TearDown() override {
    // What has arrived is waited for.
    for (const auto& process : at_there.processes) ::kill(process->pid(), SIGKILL);
    for (auto* ferryd : {&here, &other, &there}) ferryd->stop();
  }

  v1::GroupReport move() {
    return here.daemon->move_several(0, request, [](const v1::MoveProgress&) {});
  }
  // They were stopped, and go on where they were.
  static bool is_back(const Machines& machines) {
    const auto& seen = machines.process->seen();
    return eventually([&] { return seen.resumed == 1; }) && seen.rollback;
  }
  static bool was_never_stopped(const Machines& machines) {
    return machines.process->seen().stopped == 0;
  }

  FerrydHere here{"here"}, other{"other"}, there{"there"};
  Machines at_here{here}, at_other{other, 94}, at_there{there};
  v1::MoveRequest request;
};

TEST_F(SeveralHosts, MoveTogetherByOneRecord) {
  const auto report = move();
  EXPECT_EQ(report.from(), "here, other");
  ASSERT_EQ(report.programs_size(), 2);
  EXPECT_EQ(report.programs(0).from(), "here");
  EXPECT_EQ(report.programs(1).from(), "other");
  EXPECT_GE(report.blackout_ms(), report.programs(0).blackout_ms());
  ASSERT_EQ(at_there.processes.size(), 2u);
  for (const auto& process : at_there.processes) {
    EXPECT_TRUE(eventually([&] { return process->seen().resumed == 1; }));
    EXPECT_FALSE(process->seen().rollback);
  }
  const auto left = here.daemon->history(0, {}).moves(0);
  EXPECT_NE(left.group(), 0u);
  EXPECT_EQ(other.daemon->history(0, {}).moves(0).group(), left.group());
  const auto record = there.decisions.find(left.move_id(), Side::kDestination);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->moves.size(), 2u);
  // Of each source's promise there is a record there.
  EXPECT_EQ(here.decisions.find(left.move_id(), Side::kSource)->moves.size(), 1u);
}

TEST_F(SeveralHosts, AreLookedAtAndNotTouched) {
  const auto plan = there.daemon->plan_several(0, [&] {
    auto from_elsewhere = request;
    from_elsewhere.set_from(0, here.host.address);
    from_elsewhere.set_programs(0, "vm@" + here.host.address);
    return from_elsewhere;
  }());
  ASSERT_EQ(plan.programs_size(), 2);
  EXPECT_EQ(plan.programs(1).from(), "other");
  at_other.obstacle = "its processor is on fire";
  at_there.is_full = true;
  const std::string failure = failure_of([&] { here.daemon->plan_several(0, request); });
  EXPECT_NE(failure.find("there is no room for a machine"), std::string::npos) << failure;
  EXPECT_NE(failure.find("other: 'vm' would not be moved: its processor is on fire"),
            std::string::npos)
      << failure;
  EXPECT_TRUE(was_never_stopped(at_here) && was_never_stopped(at_other));
  EXPECT_TRUE(here.departures->moves().empty() && other.departures->moves().empty());
}

TEST_F(SeveralHosts, StayWhenOneOfThemIsRefused) {
  at_other.obstacle = "its processor is on fire";
  EXPECT_EQ(failure_of([&] { move(); }),
            "'vm' on here, 'vm' on other were not moved: other: 'vm': its processor is on fire");
  EXPECT_TRUE(was_never_stopped(at_here) && was_never_stopped(at_other));
  EXPECT_TRUE(there.arrivals->all().empty());
  at_other.obstacle.clear();
  EXPECT_EQ(move().programs_size(), 2);
}

TEST_F(SeveralHosts, StayWhenOneOfThemIsNotRestored) {
  std::atomic<int> restored{0};
  at_there.when_it_restores = [&] {
    if (++restored == 2) at_there.is_broken = true;
  };
  const std::string failure = failure_of([&] { move(); });
  EXPECT_NE(failure.find("were not moved: "), std::string::npos) << failure;
  EXPECT_NE(failure.find("the machine has no luck today"), std::string::npos) << failure;
  EXPECT_TRUE(is_back(at_here));
  EXPECT_TRUE(is_back(at_other));
  EXPECT_TRUE(eventually([&] { return at_there.processes.empty(); }));
}

TEST_F(SeveralHosts, AreNamedWithTheirHosts) {
  request.set_programs(0, "vm");
  EXPECT_EQ(failure_of([&] { move(); }),
            "there is a program 'vm' on here, other each: give one, as vm@here");
  request.set_programs(0, "none");
  EXPECT_EQ(failure_of([&] { move(); }),
            "there is no program 'none' on here, other; see: ferry ps, there");
  request.set_programs(0, "@here");
  EXPECT_EQ(failure_of([&] { move(); }), "'@here' is no program, nor PROGRAM@HOST");
}

TEST_F(SeveralHosts, AreRootsToMove) {
  EXPECT_NE(failure_of([&] {
              here.daemon->move_several(4321, request, [](const auto&) {});
            }).find("are root's"),
            std::string::npos);
}

// As a leader that dies, of whom this host hears nothing more.
TEST_F(SeveralHosts, GoOnWhenTheirLeaderIsGone) {
  using Step = v1::MovePartStep;
  Peer peer(other.host.address, nullptr);
  Step look;
  look.set_kind(Step::LOOK);
  look.mutable_request()->add_programs(std::to_string(at_other.process->pid()));
  look.mutable_request()->set_to(there.host.address);
  Step check;
  check.set_kind(Step::CHECK);
  check.mutable_group()->set_id(7);
  check.mutable_group()->set_programs(2);
  check.mutable_group()->set_program(1);
  for (const char* host : {"here", "other"}) {
    auto* source = check.mutable_group()->add_sources();
    source->set_host(host);
    source->set_programs(1);
  }
  Step prepare;
  prepare.set_kind(Step::PREPARE);
  const auto to_the_end = [](auto& steps, const Step& step) {
    steps->send(step);
    auto reply = steps->receive();
    while (reply.has_progress()) reply = steps->receive();
    return reply;
  };
  {
    const auto steps = peer.converse<Step, v1::MovePartReply>();
    EXPECT_EQ(failure_of([&] { steps->ask(prepare); }),
              peer.name() + ": malformed request: a step is missing");
  }
  {
    const auto steps = peer.converse<Step, v1::MovePartReply>();
    EXPECT_EQ(to_the_end(steps, look).host(), "other");
    auto of_another = check;
    of_another.mutable_group()->set_program(0);
    EXPECT_EQ(to_the_end(steps, of_another).failure(), "malformed request");
    EXPECT_EQ(failure_of([&] { steps->ask(prepare); }),
              peer.name() + ": malformed request: a step has failed before");
  }
  {
    const auto steps = peer.converse<Step, v1::MovePartReply>();
    to_the_end(steps, look);
    EXPECT_EQ(to_the_end(steps, check).failure(), "");
    EXPECT_EQ(to_the_end(steps, prepare).failure(), "");
    EXPECT_EQ(there.arrivals->all().size(), 1u);
  }
  EXPECT_TRUE(eventually([&] { return other.history.under_way().empty(); }));
  const auto past = other.daemon->history(0, {}).moves(0);
  EXPECT_EQ(past.outcome(), "failed");
  EXPECT_EQ(past.reason(), "the programs of other hosts that were to move with it do not move");
  EXPECT_TRUE(was_never_stopped(at_other));
  EXPECT_TRUE(eventually([&] { return there.arrivals->all().empty(); }));
}

}  // namespace
}  // namespace ferry::host
