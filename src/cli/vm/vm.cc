#include "cli/vm/vm.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/failure.h"
#include "cli/text/table.h"
#include "host/proc/process_tree.h"
#include "host/units/vm/machine_record.h"

namespace ferry::cli {
namespace {

void need_root() {
  if (::geteuid() != 0) throw Failure("ferry vm needs root; use sudo");
}

}  // namespace

void vm_run(const std::string& name, const std::vector<std::string>& nics,
            const std::vector<std::string>& command) {
  need_root();
  const host::MachineRecords records;
  host::MachineRecords::need_name(name);
  const host::QemuCommand qemu(command, nics);
  if (const auto known = records.find(name); known && known->is_alive()) {
    throw Failure(
        fmt::format("the machine '{}' runs on this host already (process {})", name, known->pid));
  }
  records.remove(name);
  const pid_t pid = ::getpid();
  records.write(
      {name, command, nics, std::filesystem::current_path(), pid, host::start_time(pid), false});
  auto words = qemu.for_start(records.folder_of(name));
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  const int error = errno;
  records.remove(name);
  throw Failure(fmt::format("cannot start {}: {}", printable(words.front()), error_text(error)));
}

int vm_ps(bool json) {
  need_root();
  auto machines = host::MachineRecords().all();
  std::erase_if(machines, [](const auto& machine) { return !machine.is_alive(); });
  if (json) {
    auto list = nlohmann::json::array();
    for (const auto& machine : machines) {
      list.push_back({{"name", machine.name},
                      {"pid", machine.pid},
                      {"state", machine.is_arriving ? "arriving" : "running"},
                      {"nics", machine.nics}});
    }
    fmt::print("{}\n", list.dump(2));
    return 0;
  }
  if (machines.empty()) {
    fmt::print("no machine runs here; start one with: ferry vm run NAME -- QEMU...\n");
    return 0;
  }
  Table table({"MACHINE", "PID", "STATE", "NICS"});
  for (const auto& machine : machines) {
    table.add({machine.name, std::to_string(machine.pid),
               machine.is_arriving ? "arriving" : "running",
               fmt::format("{}", fmt::join(machine.nics, ", "))});
  }
  fmt::print("{}", table.text());
  return 0;
}

}  // namespace ferry::cli
