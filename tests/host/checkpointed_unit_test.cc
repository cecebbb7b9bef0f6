#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "ferry.pb.h"
#include "ferryd_here.h"
#include "host/image/checkpoint_note.h"
#include "host/proc/process_tree.h"
#include "played_process.h"
#include "two_ferryds.h"

// A played runtime that makes and restores checkpoints by itself, as podman does
// (Unit::is_checkpointed()): its program moves from one ferryd to another, and is restored where it
// was when the move is given up.
namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using test::eventually;
using test::failure_of;
using test::FerrydHere;
using test::past;
using test::PlayedProcess;
using test::TwoFerryds;

class Played : public UnitKind {
 public:
  static constexpr char kProgram[] = "web";

  explicit Played(FerrydHere& its_ferryd) : ferryd(its_ferryd) {}

  std::string kind() const override { return "played"; }
  bool has(const std::string& name) override { return name == kProgram && process(); }
  std::shared_ptr<Unit> named(const std::string& host, const std::string& name) override;
  std::shared_ptr<Unit> of_process(const std::string&, pid_t) override { return nullptr; }
  std::shared_ptr<Unit> arrive(const std::string& name, const std::string& details,
                               const std::string& source) override;
  bool has_made(const std::string& instance) const override { return instance == "played:web"; }
  std::shared_ptr<Unit> known(const std::string& name, const std::string& instance) override;

  // Starts the program's process: the first of its own pid namespace, wherever that runs.
  void start(std::uint64_t move_id = 0) {
    std::lock_guard lock(mutex_);
    const UniqueFd outer(::open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(::unshare(CLONE_NEWPID), 0);
    process_.emplace(ferryd.folder.path("sock"),
                     PlayedProcess::Behaviour{.slot = 94, .comes_back_from = move_id});
    EXPECT_EQ(::setns(outer.get(), CLONE_NEWPID), 0);
  }
  // Null: it does not run here.
  PlayedProcess* process() {
    std::lock_guard lock(mutex_);
    return process_ ? &*process_ : nullptr;
  }
  void end() {
    std::lock_guard lock(mutex_);
    process_.reset();
  }
  // What its runtime has written.
  std::string image() const {
    std::lock_guard lock(mutex_);
    return image_;
  }
  void write(const std::string& its_image) {
    std::lock_guard lock(mutex_);
    image_ = its_image;
  }
  // As its CRIU does: with the plugin's questions. Gives an empty string, or what failed.
  std::string restore(const std::string& its_image) {
    const auto move_id = parse_note(its_image)->id;
    try {
      EXPECT_EQ(ferryd.daemon->claim(::getpid(), its_image).note, agent::kOfMove);
    } catch (const Failure& failure) {
      return failure.what();
    }
    start(move_id);
    agent::Done done;
    do {
      done = ferryd.daemon->restored({its_image, process()->pid(), true});
    } while (done.code == EAGAIN);
    if (done.code != 0) {
      end();
      return done.error;
    }
    if (when_it_is_restored) when_it_is_restored();
    process()->seen().control.command = agent::ControlBlock::kFrozen;
    return {};
  }

  FerrydHere& ferryd;
  // What happens at these points; a reason ends them.
  std::function<std::string()> when_it_restores, when_it_comes_back;
  std::function<void()> before_the_promise, when_it_is_restored;
  milliseconds patience{60000};
  std::atomic<bool> was_forgotten{false};

 private:
  mutable std::mutex mutex_;
  std::optional<PlayedProcess> process_;
  std::string image_;
};

class PlayedUnit : public Unit {
 public:
  PlayedUnit(Played& played, const std::string& name, pid_t root)
      : Unit(name, root), played_(played) {}

  std::string kind() const override { return "played"; }
  std::string instance() const override { return "played:web"; }
  bool is_checkpointed() const override { return true; }
  void want(const Extras&) override {}
  void need_movable() const override {}
  std::set<std::string> needed_files() const override { return {}; }
  void stage(State state, pid_t, const std::string&) const override {
    if (state == State::kMoved && played_.before_the_promise) played_.before_the_promise();
  }

  std::string dump(CriuRunner&, CriuRunner::Dump dump, std::atomic<pid_t>*) const override {
    Daemon& daemon = *played_.ferryd.daemon;
    const auto paused = daemon.pause_tree(root());
    if (paused.code != 0) return paused.error;
    if (const auto frozen = daemon.frozen(root()); frozen.code != 0) return frozen.error;
    played_.write(paused.note);
    played_.end();
    for (const char& each : paused.note) {
      dump.send("image", std::as_bytes(std::span(&each, 1)));  // as it is written
    }
    return dump.written() == 0 ? "" : "the move was given up";
  }
  std::string come_back(milliseconds, bool* killed) const override {
    *killed = false;
    if (played_.process()) return {};
    std::string reason = played_.when_it_comes_back ? played_.when_it_comes_back() : "";
    return reason.empty() ? played_.restore(played_.image()) : reason;
  }

  std::string restore(CriuRunner&, CriuRunner::Restore restore,
                      std::atomic<pid_t>*) const override {
    std::string reason = played_.when_it_restores ? played_.when_it_restores() : "";
    if (!reason.empty()) return reason;
    std::ifstream image(restore.images + "/image");
    return played_.restore({std::istreambuf_iterator<char>(image), {}});
  }
  milliseconds patience() const override { return played_.patience; }
  void forget() const override { played_.was_forgotten = true; }

 private:
  Played& played_;
};

std::shared_ptr<Unit> Played::named(const std::string&, const std::string& name) {
  return std::make_shared<PlayedUnit>(*this, name, process()->pid());
}
std::shared_ptr<Unit> Played::arrive(const std::string& name, const std::string&,
                                     const std::string&) {
  return std::make_shared<PlayedUnit>(*this, name, 0);
}
std::shared_ptr<Unit> Played::known(const std::string& name, const std::string&) {
  return std::make_shared<PlayedUnit>(*this, name, 0);
}

struct CheckpointedUnit : TwoFerryds<Played> {
  std::atomic<bool> has_ended_here{false};

  void expect_it_goes_on_at_home() {
    ASSERT_TRUE(at_home.process());
    const auto& seen = at_home.process()->seen();
    EXPECT_TRUE(eventually([&] { return seen.resumed == 1; }));
    EXPECT_TRUE(seen.rollback && seen.same_socket);
    EXPECT_FALSE(abroad.process());
    EXPECT_TRUE(eventually([&] { return abroad.was_forgotten.load(); }));
  }
};

TEST_F(CheckpointedUnit, Moves) {
  std::promise<std::string> at_home_meanwhile;
  abroad.when_it_restores = [&] {
    // It is decided by nobody yet, and so restored nowhere else.
    at_home_meanwhile.set_value(
        failure_of([&] { here.daemon->claim(::getpid(), at_home.image()); }));
    return "";
  };
  const auto report = move();
  EXPECT_EQ(at_home_meanwhile.get_future().get(),
            "'web' cannot go on from this checkpoint: it is being moved to " + there.host.address);
  ASSERT_EQ(report.programs_size(), 1);
  EXPECT_EQ(report.programs(0).program(), "web");
  ASSERT_TRUE(abroad.process());
  const auto& seen = abroad.process()->seen();
  EXPECT_TRUE(eventually([&] { return seen.resumed == 1; }));
  EXPECT_FALSE(seen.rollback);
  EXPECT_FALSE(abroad.was_forgotten);
  for (const FerrydHere* ferryd : {&here, &there}) {
    EXPECT_EQ(past(*ferryd).outcome(), "moved");
    EXPECT_EQ(past(*ferryd).kind(), "move");
    EXPECT_EQ(past(*ferryd).program(), "web");
    EXPECT_EQ(past(*ferryd).to(), "there");
  }
  EXPECT_DOUBLE_EQ(past(here).parts().blackout_ms(), report.programs(0).blackout_ms());
  EXPECT_GT(past(there).parts().restore_ms(), 0);
  // Who restores the image once more gets nothing, here or there.
  EXPECT_EQ(failure_of([&] { here.daemon->claim(::getpid(), at_home.image()); }),
            "'web' cannot go on from this checkpoint: it has moved to " + there.host.address);
  EXPECT_EQ(failure_of([&] { there.daemon->claim(::getpid(), at_home.image()); }),
            "'web' cannot go on from this checkpoint: it was restored already");
}

TEST_F(CheckpointedUnit, IsRestoredWhereItWasWhenItsDestinationCannot) {
  abroad.when_it_restores = [] { return "no luck today"; };
  EXPECT_NE(failure_of([&] { move(); }).find("cannot restore 'web': no luck today"),
            std::string::npos);
  expect_it_goes_on_at_home();
  for (const FerrydHere* ferryd : {&here, &there}) {
    EXPECT_EQ(past(*ferryd).outcome(), "failed");
    EXPECT_EQ(past(*ferryd).step(), "restore");
    EXPECT_TRUE(past(*ferryd).reason().ends_with("cannot restore 'web': no luck today"))
        << past(*ferryd).reason();
  }
  EXPECT_GT(past(here).parts().blackout_ms(), past(here).parts().stop_ms());
}

// The runtime would end it, and then there was nothing to commit.
TEST_F(CheckpointedUnit, IsHeldForAsLongAsItsRuntimeWaits) {
  abroad.patience = milliseconds(50);
  at_home.before_the_promise = [&] {
    EXPECT_TRUE(eventually([&] { return abroad.was_forgotten.load(); }));
  };
  // Whether the destination knows still why depends on when it is asked.
  EXPECT_TRUE(failure_of([&] { move(); }).starts_with("'web' was not moved: "));
  expect_it_goes_on_at_home();
  EXPECT_EQ(past(here).outcome(), "failed");
  EXPECT_EQ(past(there).outcome(), "failed");
  EXPECT_EQ(past(there).step(), "commit");
  EXPECT_EQ(past(there).reason(), "played does not wait any longer");
}

TEST_F(CheckpointedUnit, WhatItsRuntimeCannotRestoreOthersMay) {
  abroad.when_it_restores = [] { return "no luck today"; };
  at_home.when_it_comes_back = [] { return "none here either"; };
  const std::string error = failure_of([&] { move(); });
  EXPECT_TRUE(error.ends_with("no luck today; and it does not go on here: none here either"))
      << error;
  EXPECT_EQ(past(here).outcome(), "lost");
  EXPECT_EQ(past(here).step(), "restore");
  EXPECT_EQ(past(here).reason(), error);
  EXPECT_FALSE(at_home.process());
  EXPECT_EQ(at_home.restore(at_home.image()), "");
  expect_it_goes_on_at_home();
}

// Its ferryd ends before it hears that the program goes on.
TEST_F(CheckpointedUnit, WhatHasMovedWhenItsFerrydEndsIsToldByTheNext) {
  here.host.limits.resume = milliseconds(1);
  abroad.when_it_is_restored = [&] {
    EXPECT_TRUE(eventually([&] { return here.departures->moves().at(0)->group().committed(); }));
    here.host.stopping = true;
    EXPECT_TRUE(eventually([&] { return has_ended_here.load(); }));
  };
  EXPECT_NE(failure_of([&] { move(); }), "");
  EXPECT_EQ(here.history.under_way().size(), 1u);
  has_ended_here = true;
  here.restart();
  EXPECT_EQ(past(here).outcome(), "moved");
  EXPECT_EQ(past(here).to(), "there");
}

// It ends before the runtime has restored the program.
TEST_F(CheckpointedUnit, WhatIsRestoredWhenItsFerrydHasEndedIsToldByTheNext) {
  abroad.when_it_restores = [&] {
    here.host.stopping = true;
    return "no luck today";
  };
  EXPECT_TRUE(failure_of([&] { move(); }).ends_with("this ferryd is ending"));
  EXPECT_EQ(here.history.under_way().size(), 1u);
  here.restart();
  EXPECT_EQ(past(here).outcome(), "failed");
  EXPECT_EQ(past(here).reason(), kFerrydEnded);
  expect_it_goes_on_at_home();
}

// As a former ferryd has left it that was killed when the program's checkpoint was made.
struct OfAFormerFerryd : CheckpointedUnit {
  static constexpr std::uint64_t kMove = 4711;
  const std::string peer = "there@" + there.host.address;

  void SetUp() override {
    CheckpointedUnit::SetUp();
    const pid_t pid = at_home.process()->pid();
    v1::PastMove begun;
    begun.set_move_id(kMove);
    begun.set_program("web");
    begun.set_from("here");
    begun.set_to(there.host.address);
    here.accounts->begun(Side::kSource, begun);
    Held held{"web", "there@127.0.0.1:1", {}, "played:web", stamp_now().boot,
              pid,   start_time(pid),     {}};
    StoppedTree tree(*here.control, here.stand_ins, kMove);
    tree.stop(here.control->processes(), *here.residents, milliseconds(60000),
              [&](const auto& processes) { held.processes = *processes; });
    here.decisions.note(Journal::held(kMove, Side::kSource, held));
    here.decisions.note(Journal::going(kMove, {"there", tree.sockets()}));
    at_home.write(to_text({kMove, "web", "here", here.host.address}));
    at_home.end();
  }
  void promise(const std::string& to) {
    here.decisions.record(Side::kSource, {Decision::kCommitted, "web", to, {kMove}});
  }
  // What the history tells of its end.
  void expect_end(const std::string& outcome, const std::string& step, const std::string& reason) {
    const auto move = past(here);
    EXPECT_EQ(move.outcome(), outcome);
    EXPECT_EQ(move.step(), step);
    EXPECT_EQ(move.reason(), reason);
    EXPECT_EQ(move.to(), "there");
    EXPECT_FALSE(move.ended().empty());
  }
  void expect_it_is_restored() {
    ASSERT_TRUE(
        eventually([&] { return at_home.process() && at_home.process()->seen().resumed == 1; }));
    EXPECT_TRUE(at_home.process()->seen().rollback && at_home.process()->seen().same_socket);
    EXPECT_TRUE(eventually([&] { return here.daemon->decision(kMove) == Answer::kAborted; }));
  }
};

// Nothing was promised: the next ferryd does not wait for anybody's word.
TEST_F(OfAFormerFerryd, WhatWasNotPromisedIsRestored) {
  here.restart();
  expect_it_is_restored();
  expect_end("failed", "", kFerrydEnded);
}

TEST_F(OfAFormerFerryd, WhatItsRuntimeCannotRestoreIsLost) {
  at_home.when_it_comes_back = [] { return "none here either"; };
  here.restart();
  expect_end("lost", "",
             std::string(kFerrydEnded) + "; and it does not go on here: none here either");
  EXPECT_FALSE(at_home.process());
}

TEST_F(OfAFormerFerryd, WhatItsDestinationDoesNotHaveIsRestored) {
  promise(peer);
  here.restart();
  expect_it_is_restored();
  expect_end("failed", "commit",
             std::string(kFerrydEnded) + "; there: the program is not there any more");
}

TEST_F(OfAFormerFerryd, WhatItsDestinationHasCommittedHasMoved) {
  promise(peer);
  there.decisions.record(Side::kDestination, {Decision::kCommitted, "web", "", {kMove}});
  here.restart();
  expect_end("moved", "", "");
}

TEST_F(OfAFormerFerryd, WhatWasPromisedIsRestoredWhenAnOperatorSaysSo) {
  promise("there@127.0.0.1:1");
  here.restart();
  ASSERT_TRUE(eventually([&] {
    const auto former = here.departures->former(kMove);
    return former && former->in_doubt();
  }));
  EXPECT_NE(failure_of([&] { here.daemon->claim(::getpid(), at_home.image()); }), "");
  EXPECT_FALSE(at_home.process());
  EXPECT_EQ(here.history.under_way().size(), 1u);
  here.daemon->resolve(0, kMove, false);
  expect_it_is_restored();
  expect_end("aborted", "commit", kOperatorDecided);
}

// CRIU waits for the next ferryd, which knows of no commit.
TEST_F(CheckpointedUnit, WhoIsHeldForAMoveThatNobodyKnowsDoesNotGoOn) {
  const std::string image = to_text({4712, "web", "here", here.host.address});
  EXPECT_EQ(there.daemon->restored({image, at_home.process()->pid(), true}).code, 1);
  EXPECT_TRUE(is_halted(at_home.process()->pid()));
}

}  // namespace
}  // namespace ferry::host
