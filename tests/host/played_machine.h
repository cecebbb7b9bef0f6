#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/failure.h"
#include "ferryd_here.h"
#include "played_process.h"

namespace ferry::test {

// A kind of unit that Ferry does not have: a machine that no CRIU dumps.
class Machines : public UnitKind {
 public:
  using Calls = std::vector<std::string>;
  static constexpr char kProgram[] = "vm";

  // `its_slot`: of the machines' processes.
  explicit Machines(FerrydHere& its_ferryd, std::uint32_t its_slot = 93)
      : ferryd(its_ferryd), slot_(its_slot) {}

  std::string kind() const override { return "machine"; }
  bool has(const std::string& name) override { return name == kProgram && process != nullptr; }
  std::shared_ptr<Unit> named(const std::string& host, const std::string& name) override;
  std::shared_ptr<Unit> of_process(const std::string& host, pid_t pid) override {
    return name_of(pid) ? named(host, kProgram) : nullptr;
  }
  std::optional<UnitName> name_of(pid_t pid) override {
    if (process == nullptr || process->pid() != pid) return std::nullopt;
    return UnitName{kind(), kProgram, kProgram};
  }
  void check_arrival(const std::string&, const std::string& name,
                     const std::string& details) override {
    call("check " + name + " " + details);
    if (is_full) throw Failure("there is no room for a machine");
  }
  std::shared_ptr<Unit> arrive(const std::string& name, const std::string& details,
                               const std::string& source) override;

  // Starts the process in a machine: the first of its own pid namespace, wherever that runs.
  PlayedProcess& start(std::optional<std::uint64_t> move_id = {}) {
    const UniqueFd outer(::open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(::unshare(CLONE_NEWPID), 0);
    auto started = std::make_unique<PlayedProcess>(
        ferryd.folder.path("sock"),
        PlayedProcess::Behaviour{.slot = slot_, .comes_back_from = move_id.value_or(0)});
    EXPECT_EQ(::setns(outer.get(), CLONE_NEWPID), 0);
    std::lock_guard lock(mutex_);
    processes.push_back(std::move(started));
    process = processes.back().get();
    return *process;
  }
  void end(const PlayedProcess& ended) {
    std::lock_guard lock(mutex_);
    if (process == &ended) process = nullptr;
    std::erase_if(processes, [&](const auto& each) { return each.get() == &ended; });
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
  std::vector<std::unique_ptr<PlayedProcess>> processes;
  PlayedProcess* process = nullptr;  // the latest of these
  std::string obstacle;              // why no machine can move
  bool is_broken = false;            // it cannot restore
  std::atomic<bool> is_full{false};
  std::function<void()> when_it_restores, when_it_is_opened;

 private:
  const std::uint32_t slot_;
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
  void need_movable() const override {
    machines_.call("check");
    if (!machines_.obstacle.empty()) throw Failure(machines_.obstacle);
  }
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
    PlayedProcess& process = machines_.start(restore.move_id);
    const pid_t root = process.pid();
    if (machines_.ferryd.daemon->action({"post-restore", root, restore.move_id}).code != 0) {
      machines_.end(process);
      return "the machine was not let go on";
    }
    process.seen().control.command = agent::ControlBlock::kGo;
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

inline std::shared_ptr<Unit> Machines::named(const std::string&, const std::string& name) {
  return std::make_shared<Machine>(*this, name, process->pid());
}

inline std::shared_ptr<Unit> Machines::arrive(const std::string& name, const std::string& details,
                                              const std::string&) {
  call("arrive " + name + " " + details);
  return std::make_shared<Machine>(*this, name, 0);
}

}  // namespace ferry::test
