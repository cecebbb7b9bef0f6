#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "ferry.pb.h"
#include "ferryd_here.h"
#include "played_process.h"
#include "two_ferryds.h"

// A kind of unit that Ferry does not have, a machine that no CRIU dumps, moves from one ferryd to
// another by what src/host/move asks of any unit.
namespace ferry::host {
namespace {

using test::eventually;
using test::failure_of;
using test::FerrydHere;
using test::past;
using test::PlayedProcess;
using test::TwoFerryds;

using Calls = std::vector<std::string>;

class Machine;

class Machines : public UnitKind {
 public:
  static constexpr char kProgram[] = "vm";

  explicit Machines(FerrydHere& its_ferryd) : ferryd(its_ferryd) {}

  std::string kind() const override { return "machine"; }
  bool has(const std::string& name) override { return name == kProgram && process; }
  std::shared_ptr<Unit> named(const std::string& host, const std::string& name) override;
  std::shared_ptr<Unit> of_process(const std::string&, pid_t) override { return nullptr; }
  void check_arrival(const std::string&, const std::string& name,
                     const std::string& details) override {
    call("check " + name + " " + details);
    if (is_full) throw Failure("there is no room for a machine");
  }
  std::shared_ptr<Unit> arrive(const std::string& name, const std::string& details,
                               const std::string& source) override;

  // Starts the process in the machine: the first of its own pid namespace, wherever that runs.
  pid_t start(std::optional<std::uint64_t> move_id = {}) {
    const UniqueFd outer(::open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(::unshare(CLONE_NEWPID), 0);
    process.emplace(ferryd.folder.path("sock"),
                    PlayedProcess::Behaviour{.slot = 93, .comes_back_from = move_id.value_or(0)});
    EXPECT_EQ(::setns(outer.get(), CLONE_NEWPID), 0);
    return process->pid();
  }

  void call(const std::string& text) {
    std::lock_guard lock(mutex_);
    calls_.push_back(text);
  }
  Calls calls() const {
    std::lock_guard lock(mutex_);
    return calls_;
  }

  FerrydHere& ferryd;
  std::optional<PlayedProcess> process;
  bool is_broken = false;  // it cannot restore
  std::atomic<bool> is_full{false};
  std::function<void()> when_it_restores, when_it_is_opened;

 private:
  mutable std::mutex mutex_;
  Calls calls_;
};

class Machine : public Unit {
 public:
  Machine(Machines& machines, const std::string& name, pid_t root)
      : Unit(name, root), machines_(machines) {}

  std::string kind() const override { return "machine"; }
  std::string details() const override { return "2 processors"; }
  std::string instance() const override { return "machine:vm"; }
  void switch_network(const std::string& command) const override {
    machines_.call(command);
    if (command == "activate" && machines_.when_it_is_opened) machines_.when_it_is_opened();
  }
  void stage(State state, pid_t, const std::string&) const override {
    machines_.call(state == State::kMoved ? "stage moved" : "stage running");
  }
  void publish() const override { machines_.call("publish"); }

  void want(const Extras&) override {}
  void need_movable() const override { machines_.call("check"); }
  std::set<std::string> needed_files() const override { return {}; }
  void leave() const override { machines_.call("leave"); }
  // What a machine does by itself, in place of CRIU, its plugin and its action script.
  std::string dump(CriuRunner&, CriuRunner::Dump dump, std::atomic<pid_t>*) const override {
    machines_.call("dump");
    Daemon& daemon = *machines_.ferryd.daemon;
    if (const auto paused = daemon.pause_tree(root()); paused.code != 0) return paused.error;
    if (const auto frozen = daemon.frozen(root()); frozen.code != 0) return frozen.error;
    daemon.action({"network-lock", root(), dump.move_id});
    std::ofstream(dump.images + "/memory") << "all of it";
    if (daemon.action({"post-dump", root(), dump.move_id}).code == 0) {
      ::kill(root(), SIGKILL);
      return {};
    }
    daemon.dump_failed(root());
    daemon.action({"network-unlock", root(), dump.move_id});
    return "the machine was not let go";
  }
  void left() const override { machines_.call("left"); }

  std::string restore(CriuRunner&, CriuRunner::Restore restore,
                      std::atomic<pid_t>*) const override {
    machines_.call("restore");
    if (machines_.when_it_restores) machines_.when_it_restores();
    if (machines_.is_broken) return "the machine has no luck today";
    std::string memory;
    std::getline(std::ifstream(restore.images + "/memory"), memory);
    EXPECT_EQ(memory, "all of it");
    const pid_t root = machines_.start(restore.move_id);
    if (machines_.ferryd.daemon->action({"post-restore", root, restore.move_id}).code != 0) {
      machines_.process.reset();
      return "the machine was not let go on";
    }
    machines_.process->seen().control.command = agent::ControlBlock::kGo;
    return {};
  }
  bool end(int) const override {
    machines_.call("end");
    return true;
  }
  void forget() const override { machines_.call("forget"); }

 private:
  Machines& machines_;
};

std::shared_ptr<Unit> Machines::named(const std::string&, const std::string& name) {
  return std::make_shared<Machine>(*this, name, process->pid());
}

std::shared_ptr<Unit> Machines::arrive(const std::string& name, const std::string& details,
                                       const std::string&) {
  call("arrive " + name + " " + details);
  return std::make_shared<Machine>(*this, name, 0);
}

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
