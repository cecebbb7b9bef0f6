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

  // Unplugs the NICs. Throws Failure when the guest does not let go of one before `until`.
  void unplug(Qmp::Clock::time_point until);
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
  void make_netdev(const MachineNic& nic);

  const std::vector<MachineNic> nics_;
  Qmp qmp_;
};

}  // namespace ferry::host
