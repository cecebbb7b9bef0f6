#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "host/units/vm/qemu_command.h"
#include "host/units/vm/qmp.h"

namespace ferry::host {

// A machine that a QEMU of this host runs, or is about to.
class Machine {
 public:
  // `folder`: of the machine, with the socket of QEMU's monitor. Throws Failure.
  Machine(const std::string& folder, std::vector<MachineNic> nics);

  Qmp& qmp() { return qmp_; }
  std::string qemu_version();
  // QEMU's RunState: "running", "paused", "postmigrate", ...
  std::string state();
  // What query-migrate gives. `status`: "none" before there is a migration.
  nlohmann::json migration();
  // It has a migration that is under way, and can be given up.
  bool is_migrating();
  // The same, and a SourceMigration has begun it.
  bool is_migrated_by_ferry();
  // Whether a migration waits for migrate-continue when it has stopped the machine.
  void pause_before_switchover(bool on);

  // Returns when the guest has unplugged the NICs, which QEMU does not do by itself while it migrates the machine.
  // Throws Failure when it has not before `until`.
  void await_unplugged(Qmp::Clock::time_point until);
  // Makes what is behind the NICs on this host, without which they cannot be plugged. Throws Failure.
  void prepare_nics();
  // Plugs those NICs that the machine does not have. Throws Failure.
  void plug();

  // Lets a machine run that has arrived.
  void run();
  // Has the machine run here with all of its NICs, whatever a move that is given up has done with it.
  void take_back();
  // Ends QEMU.
  void quit();

 private:
  bool has(const MachineNic& nic);
  void forget_netdev(const MachineNic& nic);

  const std::vector<MachineNic> nics_;
  Qmp qmp_;
  bool is_prepared_ = false;
};

}  // namespace ferry::host
