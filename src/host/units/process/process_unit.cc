#include "host/units/process/process_unit.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failure.h"
#include "host/proc/process_tree.h"
#include "host/proc/scope.h"
#include "host/units/host_network.h"
#include "host/units/obstacles.h"

namespace ferry::host {

std::string ProcessUnit::kind() const {
  return "process";
}

void ProcessUnit::want(const Extras& extras) {
  if (extras.rootfs) {
    throw Failure(
        fmt::format("'{}' is no container, whose root filesystem could be copied", name()));
  }
  stdio_ = extras.stdio;
}

void ProcessUnit::need_movable() const {
  const OuterStreams streams = stdio_.empty() ? OuterStreams::kStay : OuterStreams::kReplaced;
  if (const auto obstacle = find_obstacle(root(), streams); !obstacle.empty()) {
    throw Failure(obstacle);
  }
  if (const auto obstacle = obstacle_on_host_network(root()); !obstacle.empty()) {
    throw Failure(obstacle);
  }
}

std::set<std::string> ProcessUnit::needed_files() const {
  return host::needed_files(root());
}

std::optional<StdioFile> ProcessUnit::redirects_to(uid_t user) const {
  if (stdio_.empty()) return std::nullopt;
  struct stat status {};
  if (::stat(fmt::format("/proc/{}", root()).c_str(), &status) != 0) {
    throw Failure(fmt::format("'{}' has ended", name()));
  }
  return StdioFile{stdio_, user, user == 0 ? 0 : status.st_gid, status.st_uid};
}

std::string ProcessUnit::dump(CriuRunner& criu, CriuRunner::Dump dump,
                              std::atomic<pid_t>* pid) const {
  return criu.dump(dump, pid);
}

std::string ProcessUnit::restore(CriuRunner& criu, CriuRunner::Restore restore,
                                 std::atomic<pid_t>* pid) const {
  return criu.restore(restore, pid);
}

void ProcessUnit::settle(pid_t root) const {
  give_scope(root, name());
}

std::string ProcessKind::kind() const {
  return "process";
}

std::shared_ptr<Unit> ProcessKind::named(const std::string&, const std::string& name) {
  throw Failure(
      fmt::format("'{}': programs without a container are found by program name or pid alone",
                  printable(name)));
}

std::shared_ptr<Unit> ProcessKind::of_process(const std::string& host, pid_t pid) {
  // CRIU alone knows nothing of a container's mounts, cgroups and pipes.
  const std::uint64_t pids = namespace_inode(pid, "pid");
  if (pids != 0 && pids != namespace_inode(::getpid(), "pid")) {
    throw Failure(fmt::format(
        "process {} ({}) is in a container that another runtime runs: let that checkpoint it here "
        "and restore it there, as runc and podman do (docs/containers.md)",
        pid, program_name(pid).value_or("?")));
  }
  const auto name = program_name(pid);
  if (!name) throw Failure(fmt::format("there is no process {} on {}", pid, host));
  return std::make_shared<ProcessUnit>(*name, pid);
}

std::shared_ptr<Unit> ProcessKind::arrive(const std::string& name, const std::string&,
                                          const std::string&) {
  return std::make_shared<ProcessUnit>(name, 0);
}

std::shared_ptr<Unit> ProcessKind::known(const std::string& name, const std::string&) {
  return std::make_shared<ProcessUnit>(name, 0);
}

}  // namespace ferry::host
