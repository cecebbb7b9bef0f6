#include "host/units/unit.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/failure.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

constexpr std::chrono::seconds kStatusLimit{10};  // for a program to describe itself

}  // namespace

void Unit::need_mover(uid_t user) const {
  need_owner(user, name_, root_);
}

std::string Unit::without_rdma(const std::string& what) const {
  return fmt::format(
      "{} was not started with Ferry, or uses no RDMA device yet: start it with: ferry run -- "
      "PROGRAM",
      what);
}

std::string has_moved(const std::string& program, const std::string& from, const std::string& to) {
  return fmt::format("'{}' has moved from {} to {}; to move it on, on {}: ferry move {} --to HOST",
                     printable(program), from, printable(to), printable(to), printable(program));
}

std::string is_moving(const std::string& program) {
  return fmt::format("'{}' is being moved already; wait until that has ended", printable(program));
}

std::vector<FerryProcess> ferry_processes(const ControlServer& control, pid_t root) {
  const auto tree = process_tree(root);
  auto processes = control.processes();
  std::erase_if(processes, [&](const FerryProcess& process) {
    return std::count(tree.begin(), tree.end(), process.pid) == 0;
  });
  return processes;
}

std::vector<agent::ContextStatus> contexts_of(ControlServer& control,
                                              const std::vector<FerryProcess>& processes) {
  std::vector<agent::ContextStatus> found;
  for (const auto& process : processes) {
    if (is_halted(process.pid)) {
      throw Failure(fmt::format(
          "process {} is stopped, by a signal or a debugger; let it run (kill -CONT {}) to move it",
          process.pid, process.pid));
    }
    auto status = control.status(process.pid, kStatusLimit);
    std::move(status.contexts.begin(), status.contexts.end(), std::back_inserter(found));
  }
  return found;
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

}  // namespace ferry::host
