#include "host/units/vm/vm_kind.h"

#include <fmt/core.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/log.h"
#include "host/proc/process_tree.h"
#include "host/proc/subprocess.h"
#include "host/units/vm/arriving_machine.h"
#include "host/units/vm/machine.h"

namespace ferry::host {
namespace {

struct Details {
  MachineRecord record;
  std::string qemu;          // its version, "7.2.22"
  std::uint64_t memory = 0;  // bytes
};

Details parse_details(const std::string& name, const std::string& text) {
  MachineRecords::need_name(name);
  try {
    const auto values = json_of(text);
    MachineRecord record{name,
                         values.at("command").get<std::vector<std::string>>(),
                         values.at("nics").get<std::vector<std::string>>(),
                         values.at("directory").get<std::string>(),
                         0,
                         0,
                         true};
    return {std::move(record), values.at("qemu").get<std::string>(),
            values.at("memory").get<std::uint64_t>()};
  } catch (const nlohmann::json::exception&) {
    throw Failure("malformed request");
  }
}

// "7.2.22" of "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)"; empty: the program does not say.
std::string version_of(const std::string& qemu) {
  constexpr char kBefore[] = "version ";
  const auto outcome = run({{qemu, "--version"}, {}, {}, {}});
  const auto at = outcome.out.find(kBefore);
  if (!outcome.ok() || at == std::string::npos) return {};
  const auto begin = at + sizeof kBefore - 1;
  return outcome.out.substr(begin, outcome.out.find_first_not_of("0123456789.", begin) - begin);
}

}  // namespace

bool VmKind::has(const std::string& name) {
  const auto record = host_.records.find(name);
  return record && record->is_alive();
}

std::shared_ptr<Unit> VmKind::named(const std::string& host, const std::string& name) {
  auto record = host_.records.find(name);
  if (!record || !record->is_alive()) {
    throw Failure(
        fmt::format("there is no machine '{}' on {}; see: ferry vm ps", printable(name), host));
  }
  if (record->is_arriving) {
    throw Failure(fmt::format("the machine '{}' is arriving on {} just now", name, host));
  }
  return std::make_shared<VmUnit>(host_, std::move(*record));
}

std::optional<MachineRecord> VmKind::machine_of(pid_t pid) const {
  for (auto& record : host_.records.all()) {
    if (record.is_alive() && is_below(pid, record.pid)) return std::move(record);
  }
  return std::nullopt;
}

std::shared_ptr<Unit> VmKind::of_process(const std::string& host, pid_t pid) {
  const auto record = machine_of(pid);
  return record ? named(host, record->name) : nullptr;
}

std::optional<UnitName> VmKind::name_of(pid_t pid) {
  const auto record = machine_of(pid);
  if (!record) return std::nullopt;
  return UnitName{kind(), record->name, record->name};
}

void VmKind::check_arrival(const std::string& host, const std::string& name,
                           const std::string& text) {
  const Details details = parse_details(name, text);
  if (has(name)) throw Failure(fmt::format("{} has a machine '{}' already", host, name));
  const QemuCommand qemu = details.record.qemu();
  const std::string& program = qemu.words().front();
  const std::string version = version_of(program);
  if (version.empty()) {
    throw Failure(fmt::format("{} cannot run {}; install QEMU there", host, printable(program)));
  }
  if (version != details.qemu) {
    throw Failure(fmt::format("{} has QEMU {}, and '{}' runs with {}; install the same there", host,
                              version, name, printable(details.qemu)));
  }
  if (details.memory + kHeadroom > room_.available()) {
    throw Failure(fmt::format("not enough memory on {} for '{}': {} MiB needed, {} MiB free", host,
                              name, details.memory >> 20, room_.available() >> 20));
  }
}

std::shared_ptr<Unit> VmKind::arrive(const std::string& name, const std::string& details,
                                     const std::string& source) {
  if (has(name)) {
    throw Failure(fmt::format("{} has a machine '{}' already", host_.host.name, printable(name)));
  }
  return std::make_shared<VmUnit>(
      host_,
      std::make_unique<ArrivingMachine>(host_.host, host_.records,
                                        parse_details(name, details).record, host_.tls, source));
}

bool VmKind::has_made(const std::string& instance) const {
  return instance.starts_with(std::string(VmUnit::kKind) + ":");
}

std::shared_ptr<Unit> VmKind::known(const std::string& name, const std::string& instance) {
  auto record = host_.records.find(name);
  if (!record || VmUnit::instance_of(*record) != instance) return nullptr;
  return std::make_shared<VmUnit>(host_, std::move(*record));
}

// Also has those machines go on that a former ferryd was about to move: a migration that is under way is promised to
// nobody.
void VmKind::clear_up_arrivals() {
  for (const auto& record : host_.records.all()) {
    if (!record.is_alive()) {
      host_.records.remove(record.name);
      continue;
    }
    report_failure([&] {
      Machine machine(host_.records.folder_of(record.name), record.qemu().nics());
      if (!record.is_arriving) {
        if (machine.is_migrated_by_ferry()) machine.take_back();
      } else if (machine.state() != "running") {
        ::kill(record.pid, SIGKILL);
        host_.records.remove(record.name);
      }
    });
  }
}

}  // namespace ferry::host
