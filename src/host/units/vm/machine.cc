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

bool Machine::has(const MachineNic& nic) {
  const auto devices = qmp_.execute("qom-list", {{"path", "/machine/peripheral"}});
  return std::any_of(devices.begin(), devices.end(),
                     [&](const auto& device) { return device.at("name") == nic.id; });
}

void Machine::unplug(Qmp::Clock::time_point until) {
  std::vector<const MachineNic*> plugged;
  for (const auto& nic : nics_) {
    if (has(nic)) plugged.push_back(&nic);
  }
  for (const auto* nic : plugged) qmp_.execute("device_del", {{"id", nic->id}});
  for (const auto* nic : plugged) {
    const bool is_gone = qmp_.await(
        [&](const nlohmann::json& event) {
          return event.at("event") == "DEVICE_DELETED" &&
                 event.at("data").value("device", std::string()) == nic->id;
        },
        until);
    if (!is_gone && has(*nic)) {
      throw Failure(fmt::format("its guest does not let go of the NIC {}", nic->id));
    }
  }
  for (const auto* nic : plugged) {
    if (!nic->netdev.empty()) qmp_.execute("netdev_del", {{"id", nic->netdev_id}});
  }
}

void Machine::make_netdev(const MachineNic& nic) {
  if (nic.netdev.empty()) return;
  try {
    qmp_.type("netdev_add " + nic.netdev);
  } catch (const Failure& failure) {
    // It is there since prepare_nics(), or an unplugging that failed has left it.
    if (std::string(failure.what()).find("uplicate") == std::string::npos) throw;
  }
}

void Machine::prepare_nics() {
  for (const auto& nic : nics_) make_netdev(nic);
}

void Machine::plug() {
  for (const auto& nic : nics_) {
    if (has(nic)) continue;
    make_netdev(nic);
    qmp_.type("device_add " + nic.device);
  }
}

void Machine::run() {
  qmp_.execute("cont");
}

void Machine::take_back() {
  if (is_migrating()) qmp_.execute("migrate_cancel");
  while (is_migrating()) std::this_thread::sleep_for(kBetweenLooks);
  report_failure([this] { plug(); });
  if (const auto now = state(); now != "running") qmp_.execute("cont");
}

void Machine::quit() {
  qmp_.execute("quit");
}

}  // namespace ferry::host
