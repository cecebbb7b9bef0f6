#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host/move/source/kernel/partners.h"
#include "host/move/source/source_side.h"
#include "host/move/under_way.h"
#include "host/proc/kernel_devices.h"
#include "host/standin/stopped_tree.h"
#include "host/units/units.h"

namespace ferry::host {

// A program that leaves its devices of the kernel, and enters them again, on this host: the guest's half of a move of a
// virtual machine (Nomad, section 4), without the machine. It stops as in a move, and goes on as after one that is
// given up; nobody freezes or dumps it meanwhile. The journal holds what is stopped: if this ferryd ends, the next one
// takes the program up as it takes up a move that was not decided (FormerMove).
class DetachedProgram : public UnderWay {
 public:
  DetachedProgram(const SourceSide& side, Units::Found program);
  ~DetachedProgram() override;

  std::uint64_t id() const { return id_; }
  pid_t root() const { return program_.unit->root(); }
  const std::string& name() const { return program_.unit->name(); }
  // Not all of the processes that were stopped are back, or have ended.
  bool is_away() const;

  // In this order; each throws Failure, one line.
  // Finds the peers of its QPs.
  void look();
  // Returns when the peers of all its QPs are suspended.
  void suspend();
  // Returns when its processes have closed their devices.
  void stop();

  // Has the peers go on, but those of processes that have stopped.
  void release_peers() { suspension_.reset(); }
  // Lets its processes open their devices, once these are there. Gives why it does not yet, one line; empty: they may,
  // and try until they can.
  std::string enter();
  // After enter(): why it is not back for so long, one line; empty: it is back, or not late, or has been asked before.
  std::string lateness();
  // How long it has stood still, in milliseconds: until the last of its processes has come back, if one has.
  std::optional<double> stood_still_ms() const;
  // From when it could open its devices until it was back, if it is.
  using Entering =
      std::pair<std::chrono::steady_clock::time_point, std::chrono::steady_clock::time_point>;
  std::optional<Entering> entering() const;

  // --- UnderWay
  bool has_process(pid_t pid) const override { return tree_.has_process(pid); }
  int action(const std::string&, pid_t) override { return 1; }
  std::optional<ResumeSlots> wake(pid_t inner_pid) override { return tree_.wake(inner_pid); }
  void resumed(pid_t inner_pid, const agent::Resumed& resumed) override;
  bool is_checkpointed() const override { return false; }
  void need_restorable() const override;
  int restored(pid_t) override { return 1; }

 private:
  using Clock = std::chrono::steady_clock;
  void note_held(const std::vector<HeldProcess>& processes);
  std::string missing_device(const std::vector<KernelDevice>& here) const;

  const SourceSide& side_;
  const std::uint64_t id_;
  const Units::Found program_;
  std::map<std::string, std::string>
      nodes_;                     // of its devices, if its /dev is not the host's; as of look()
  std::set<std::string> active_;  // devices with an active port, as of look()
  std::vector<FerryProcess> leaving_;  // as of suspend()
  Partners partners_;
  StoppedTree tree_;
  std::unique_ptr<Suspension> suspension_;
  std::optional<Clock::time_point> there_;  // since then all of its devices are
  std::optional<Clock::time_point> let_go_;
  bool is_late_told_ = false;

  bool is_noted_ = false;  // in the journal
  mutable std::mutex mutex_;
  std::optional<Clock::time_point> back_;
};

}  // namespace ferry::host
