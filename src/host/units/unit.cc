#include "host/units/unit.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/failure.h"
#include "host/proc/process_tree.h"
#include "host/units/runc/runc.h"

namespace ferry::host {
namespace {

[[noreturn]] void not_ferry(const std::string& what) {
  throw Failure(fmt::format(
      "{} was not started with Ferry, or uses no RDMA device yet: start it with: ferry run -- "
      "PROGRAM",
      what));
}

Unit unit_of_container(const Programs& programs, Container container) {
  if (container.state == "moved" || container.state == "exited") {
    throw Failure(fmt::format("'{}' does not run on {}: it has {}", container.name, programs.host,
                              container.state == "moved" ? "moved to another host" : "ended"));
  }
  if (container.state != "running" || container.pid <= 0) {
    throw Failure(
        fmt::format("'{}' is being moved already; wait until that has ended", container.name));
  }
  Unit unit{container.name, container.pid, container,
            ferry_processes(programs.control, container.pid)};
  if (unit.processes.empty()) {
    // Its end is on record only after that.
    if (!is_alive(unit.root)) throw Failure(fmt::format("'{}' has ended", unit.name));
    not_ferry(fmt::format("'{}'", unit.name));
  }
  return unit;
}

Unit unit_of_runc(const Programs& programs, Runc& runc, const std::string& id) {
  Container container = runc.describe(programs.host, id);
  Unit unit{id, container.pid, container, ferry_processes(programs.control, container.pid)};
  if (unit.processes.empty()) not_ferry(fmt::format("'{}'", id));
  return unit;
}

Unit unit_of_process(const Programs& programs, pid_t pid) {
  if (auto container = programs.runtimes.container_of(pid)) {
    if (auto* runc = dynamic_cast<Runc*>(container->runtime)) {
      return unit_of_runc(programs, *runc, container->name);
    }
    return unit_of_container(programs, std::move(*container));
  }
  // CRIU alone knows nothing of its mounts, cgroups and pipes.
  const std::uint64_t pids = namespace_inode(pid, "pid");
  if (pids != 0 && pids != namespace_inode(::getpid(), "pid")) {
    throw Failure(fmt::format(
        "process {} ({}) is in a container that another runtime runs: let that checkpoint it here "
        "and restore it there, as runc and podman do (docs/containers.md)",
        pid, program_name(pid).value_or("?")));
  }
  const auto name = program_name(pid);
  if (!name) throw Failure(fmt::format("there is no process {} on {}", pid, programs.host));
  Unit unit{*name, pid, std::nullopt, ferry_processes(programs.control, pid)};
  if (unit.processes.empty()) not_ferry(fmt::format("process {} ({})", pid, *name));
  return unit;
}

}  // namespace

std::vector<FerryProcess> ferry_processes(const ControlServer& control, pid_t root) {
  const auto tree = process_tree(root);
  auto processes = control.processes();
  std::erase_if(processes, [&](const FerryProcess& process) {
    return std::count(tree.begin(), tree.end(), process.pid) == 0;
  });
  return processes;
}

bool is_owner(uid_t user, pid_t root) {
  if (user == 0) return true;
  const auto tree = process_tree(root);
  return !tree.empty() &&
         std::all_of(tree.begin(), tree.end(), [&](pid_t pid) { return owner_of(pid) == user; });
}

void need_owner(uid_t user, const std::string& name, pid_t root) {
  if (is_owner(user, root)) return;
  throw Failure(fmt::format(
      "'{}' is not yours: only root, or the owner of all its processes, may do this", name));
}

Unit find_unit(const Programs& programs, const std::string& program, const std::string& runtime) {
  if (!runtime.empty()) {
    if (auto* runc = dynamic_cast<Runc*>(&programs.runtimes.named(runtime))) {
      return unit_of_runc(programs, *runc, program);
    }
  }
  if (auto container = programs.runtimes.hooked().find(program)) {
    return unit_of_container(programs, std::move(*container));
  }
  pid_t pid = 0;
  const char* end = program.data() + program.size();
  if (const auto [rest, error] = std::from_chars(program.data(), end, pid);
      error == std::errc() && rest == end) {
    return unit_of_process(programs, pid);
  }
  std::map<pid_t, Unit> units;  // by root
  std::string refusal;
  for (const auto& process : programs.control.processes()) {
    if (program_name(process.pid) != program.substr(0, 15)) continue;
    try {
      Unit unit = unit_of_process(programs, process.pid);
      units.emplace(unit.root, std::move(unit));
    } catch (const Failure& failure) {
      if (is_alive(process.pid)) refusal = failure.what();  // else it has just ended
    }
  }
  if (units.size() == 1) return std::move(units.begin()->second);
  if (units.size() > 1) {
    std::string candidates;
    for (const auto& [root, unit] : units) {
      if (!candidates.empty()) candidates += ", ";
      candidates += unit.container ? unit.name : std::to_string(root);
    }
    throw Failure(fmt::format("'{}' is ambiguous on {}; give one of: {}", program, programs.host,
                              candidates));
  }
  if (!refusal.empty()) throw Failure(refusal);
  const auto others = processes_named(program);
  if (!others.empty()) not_ferry(fmt::format("'{}' (process {})", program, others.front()));
  throw Failure(fmt::format("there is no program '{}' on {}; see: ferry ps, and podman ps", program,
                            programs.host));
}

}  // namespace ferry::host
