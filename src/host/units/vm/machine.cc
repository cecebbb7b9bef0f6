#include "host/units/vm/machine.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/failure.h"
#include "base/log.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswerLimit{10000};  // a QEMU whose processors are busy takes its time
constexpr milliseconds kBetweenLooks{2};
constexpr char kPauses[] = "pause-before-switchover";
// As QEMU has them by itself: bytes a second, milliseconds.
constexpr std::uint64_t kOwnBandwidth = 128 << 20;
constexpr int kOwnDowntime = 300;

}  // namespace

Machine::Machine(const std::string& folder, std::vector<MachineNic> nics)
    : nics_(std::move(nics)), qmp_(monitor_of(folder), kAnswerLimit) {}

std::string Machine::qemu_version() {
  const auto version = qmp_.execute("query-version").at("qemu");
  return fmt::format("{}.{}.{}", version.at("major").get<int>(), version.at("minor").get<int>(),
                     version.at("micro").get<int>());
}

std::string Machine::state() {
  return qmp_.execute("query-status").at("status").get<std::string>();
}

nlohmann::json Machine::migration() {
  auto answer = qmp_.execute("query-migrate");
  if (!answer.contains("status")) answer["status"] = "none";
  return answer;
}

bool Machine::is_migrating() {
  const auto status = migration().at("status").get<std::string>();
  const auto states = {"setup", "wait-unplug", "active", "pre-switchover", "device", "cancelling"};
  return std::count(states.begin(), states.end(), status) > 0;
}

bool Machine::is_migrated_by_ferry() {
  const auto capabilities = qmp_.execute("query-migrate-capabilities");
  return is_migrating() &&
         std::any_of(capabilities.begin(), capabilities.end(), [](const auto& capability) {
           return capability.at("capability") == kPauses && capability.at("state") == true;
         });
}

bool Machine::has(const MachineNic& nic) {
  const auto devices = qmp_.execute("qom-list", {{"path", "/machine/peripheral"}});
  return std::any_of(devices.begin(), devices.end(),
                     [&](const auto& device) { return device.at("name") == nic.id; });
}

void Machine::await_unplugged(Qmp::Clock::time_point until) {
  for (const auto& nic : nics_) {
    while (has(nic)) {
      if (Qmp::Clock::now() > until) {
        throw Failure(fmt::format("its guest does not let go of the NIC {}", nic.id));
      }
      std::this_thread::sleep_for(kBetweenLooks);
    }
    if (!nic.netdev.empty()) forget_netdev(nic);
  }
}

// It may be gone already, after moves that were given up.
void Machine::forget_netdev(const MachineNic& nic) {
  try {
    qmp_.execute("netdev_del", {{"id", nic.netdev_id}});
  } catch (const Failure&) {
  }
}

void Machine::prepare_nics() {
  for (const auto& nic : nics_) {
    if (!nic.netdev.empty()) qmp_.type("netdev_add " + nic.netdev);
  }
  is_prepared_ = true;
}

void Machine::plug() {
  for (const auto& nic : nics_) {
    if (has(nic)) continue;
    if (!nic.netdev.empty() && !is_prepared_) {
      try {
        qmp_.execute("netdev_del",
                     {{"id", nic.netdev_id}});  // a move that was given up may have left it
      } catch (const Failure&) {
      }
      qmp_.type("netdev_add " + nic.netdev);
    }
    qmp_.type("device_add " + nic.device);
  }
}

void Machine::run() {
  qmp_.execute("cont");
}

void Machine::pause_before_switchover(bool on) {
  qmp_.execute("migrate-set-capabilities",
               {{"capabilities", {{{"capability", kPauses}, {"state", on}}}}});
}

void Machine::take_back() {
  if (is_migrating()) qmp_.execute("migrate_cancel");
  while (is_migrating()) std::this_thread::sleep_for(kBetweenLooks);
  report_failure([this] { plug(); });
  if (state() != "running") {
    qmp_.execute("cont");
    // The QEMU at the destination may have told the network that the machine is there.
    qmp_.execute("announce-self", {{"initial", 50}, {"max", 550}, {"rounds", 5}, {"step", 100}});
  }
  report_failure([this] {
    pause_before_switchover(false);
    qmp_.execute("migrate-set-parameters",
                 {{"max-bandwidth", kOwnBandwidth}, {"downtime-limit", kOwnDowntime}});
  });
}

void Machine::quit() {
  qmp_.execute("quit");
}

}  // namespace ferry::host
