#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <future>
#include <string>

#include "base/failure.h"
#include "ferry.pb.h"
#include "ferryd_here.h"
#include "played_machine.h"
#include "played_process.h"
#include "two_ferryds.h"

// A kind of unit that Ferry does not have (played_machine.h) moves from one ferryd to another by what src/host/move
// asks of any unit.
namespace ferry::host {
namespace {

using test::eventually;
using test::failure_of;
using test::FerrydHere;
using test::Machines;
using test::past;
using test::TwoFerryds;

using Calls = Machines::Calls;

using PlayedUnit = TwoFerryds<Machines>;

TEST_F(PlayedUnit, Moves) {
  const auto report = move();
  ASSERT_EQ(report.programs_size(), 1);
  EXPECT_EQ(report.programs(0).program(), "vm");
  EXPECT_EQ(report.programs(0).to(), there.host.address);
  const auto& seen = abroad.process->seen();
  EXPECT_TRUE(eventually([&] { return seen.resumed == 1; }));
  EXPECT_FALSE(seen.rollback);
  EXPECT_EQ(at_home.calls(),
            (Calls{"check", "leave", "dump", "hold", "stage moved", "publish", "left"}));
  EXPECT_EQ(abroad.calls(), (Calls{"check vm 2 processors", "arrive vm 2 processors", "restore",
                                   "stage running", "publish", "activate"}));
  const auto left = past(here), arrived = past(there);
  EXPECT_EQ(left.program(), "vm");
  EXPECT_EQ(left.from(), "here");
  EXPECT_EQ(left.to(), "there");
  EXPECT_EQ(left.direction(), "out");
  EXPECT_EQ(left.outcome(), "moved");
  EXPECT_EQ(left.step() + left.reason(), "");
  EXPECT_DOUBLE_EQ(left.parts().blackout_ms(), report.programs(0).blackout_ms());
  EXPECT_GT(left.parts().check_ms(), 0);
  EXPECT_GT(left.parts().prepare_ms(), 0);
  EXPECT_EQ(arrived.move_id(), left.move_id());
  EXPECT_EQ(arrived.direction(), "in");
  EXPECT_EQ(arrived.outcome(), "moved");
  EXPECT_EQ(arrived.parts().image_bytes(), left.parts().image_bytes());
  EXPECT_GT(arrived.parts().restore_ms(), 0);
  ::kill(abroad.process->pid(), SIGKILL);
  EXPECT_TRUE(eventually([&] { return abroad.calls().back() == "end"; }));
  EXPECT_EQ(past(there).outcome(), "moved");
  // Users see moves of their own programs, and those of a name if they like.
  EXPECT_EQ(here.daemon->history(4321, {}).moves_size(), 0);
  v1::PastMove theirs;
  theirs.set_move_id(1);
  theirs.set_program("another");
  theirs.set_owner(4321);
  here.accounts->begun(Side::kSource, theirs);
  EXPECT_EQ(here.daemon->history(4321, {}).moves_size(), 1);
  EXPECT_EQ(here.daemon->history(4322, {}).moves_size(), 0);
  EXPECT_EQ(here.daemon->history(0, {}).moves_size(), 2);
  v1::HistoryRequest request;
  request.set_program("vm2");
  EXPECT_EQ(here.daemon->history(0, request).moves_size(), 0);
  // The next ferryd knows the same.
  here.restart();
  EXPECT_EQ(here.daemon->history(0, {}).moves(0).ended(), left.ended());
  EXPECT_EQ(here.daemon->history(0, {}).moves(1).outcome(), "failed");
}

TEST_F(PlayedUnit, IsLookedAtAndNotTouched) {
  const auto plan = here.daemon->plan(0, {"vm"}, there.host.address, {});
  ASSERT_EQ(plan.programs_size(), 1);
  EXPECT_EQ(plan.from(), "here");
  EXPECT_EQ(plan.programs(0).program(), "vm");
  EXPECT_EQ(plan.programs(0).to(), there.host.address);
  EXPECT_GT(plan.programs(0).memory_bytes(), 0u);
  EXPECT_GT(plan.programs(0).blackout_ms(), 0);
  EXPECT_FALSE(plan.programs(0).copies_ahead());
  EXPECT_EQ(at_home.calls(), Calls{"check"});
  EXPECT_EQ(abroad.calls(), Calls{"check vm 2 processors"});
  EXPECT_EQ(at_home.process->seen().stopped, 0);
  EXPECT_TRUE(here.departures->moves().empty());
  EXPECT_TRUE(here.decisions.entries().empty());
  // It says why not.
  abroad.is_full = true;
  EXPECT_EQ(failure_of([&] { here.daemon->plan(0, {"vm"}, there.host.address, {}); }),
            "'vm' would not be moved: " + there.host.address + ": there is no room for a machine");
}

TEST_F(PlayedUnit, IsGivenUpByItsUser) {
  v1::CancelRequest request;
  request.add_programs("vm");
  const std::string too_early = failure_of([&] { here.daemon->cancel(0, request); });
  EXPECT_EQ(too_early, "no move of 'vm' is under way on here");
  abroad.when_it_restores = [&] {
    EXPECT_NE(failure_of([&] { here.daemon->cancel(4321, request); }).find("is not yours"),
              std::string::npos);
    request.add_programs("other");
    EXPECT_EQ(failure_of([&] { here.daemon->cancel(0, request); }),
              "no move of 'other' is under way on here");
    request.set_programs(1, std::to_string(at_home.process->pid()));
    here.daemon->cancel(0, request);
  };
  EXPECT_EQ(failure_of([&] { move(); }), "'vm' was not moved: it was given up");
  const auto& seen = at_home.process->seen();
  EXPECT_TRUE(eventually([&] { return seen.resumed == 1; }));
  EXPECT_TRUE(seen.rollback);
  EXPECT_TRUE(eventually([&] { return abroad.calls().back() == "forget"; }));
  EXPECT_EQ(past(here).outcome(), "aborted");
  EXPECT_EQ(past(here).step(), "restore");
  EXPECT_EQ(past(here).reason(), "it was given up");
}

TEST_F(PlayedUnit, IsNotGivenUpWhenItIsPromised) {
  std::promise<std::string> too_late;
  abroad.when_it_is_opened = [&] {
    v1::CancelRequest request;
    for (const auto& leaving : here.departures->moves()) request.add_move_ids(leaving->move_id());
    request.add_programs(std::to_string(at_home.process->pid()));
    too_late.set_value(failure_of([&] { here.daemon->cancel(0, request); }));
  };
  EXPECT_EQ(move().programs_size(), 1);
  EXPECT_EQ(too_late.get_future().get().find(
                "the move of 'vm' is promised, and cannot be given up any more"),
            0u);
}

TEST_F(PlayedUnit, GoesOnWhenItsDestinationFails) {
  abroad.is_broken = true;
  EXPECT_NE(failure_of([&] { move(); }).find("cannot restore 'vm': the machine has no luck today"),
            std::string::npos);
  const auto& seen = at_home.process->seen();
  EXPECT_TRUE(eventually([&] { return seen.resumed == 1; }));
  EXPECT_TRUE(seen.rollback && seen.same_socket);
  const auto calls = at_home.calls();
  EXPECT_EQ(calls.back(), "activate");
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "publish"), 0);
  EXPECT_TRUE(eventually([&] { return abroad.calls().back() == "forget"; }));
  const auto theirs = abroad.calls();
  EXPECT_EQ(theirs.at(theirs.size() - 2), "release");
  const auto left = past(here), arrived = past(there);
  EXPECT_EQ(left.outcome(), "failed");
  EXPECT_EQ(left.step(), "restore");
  EXPECT_NE(left.reason().find("cannot restore 'vm': the machine has no luck today"),
            std::string::npos);
  EXPECT_GT(left.parts().blackout_ms(), left.parts().stop_ms());
  EXPECT_EQ(arrived.outcome(), "failed");
  EXPECT_EQ(arrived.step(), "restore");
  EXPECT_EQ(arrived.reason(), "cannot restore 'vm': the machine has no luck today");
}

}  // namespace
}  // namespace ferry::host
