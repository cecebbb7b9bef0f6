#include "host/units/podman/podman.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/log.h"
#include "host/proc/broken_dump.h"
#include "host/proc/mounts.h"
#include "host/proc/process_tree.h"
#include "host/proc/silence.h"
#include "host/proc/subprocess.h"
#include "host/units/bundle.h"
#include "host/units/criu_runner.h"

namespace ferry::host {
namespace {

using nlohmann::json;

constexpr char kPlugin[] = FERRY_CRIU_FOLDER "/ferry_plugin.so";
constexpr std::size_t kIdDigits = 64;

constexpr int kKilled = 128 + SIGKILL;
constexpr char kNoEnd[] = "it does not end";
constexpr std::chrono::hours kNoLimit{24};

std::vector<std::string> arguments_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid));
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

// Of an option of conmon's, as -r /usr/bin/runc; empty: it is not among them.
std::string value_of(const std::vector<std::string>& arguments, const std::string& option) {
  const auto found = std::find(arguments.begin(), arguments.end(), option);
  return arguments.end() - found < 2 ? std::string() : *(found + 1);
}

// runc mounts the container's root filesystem for CRIU, and CRIU mounts the cgroups, in the host's
// own mount namespace: `runc delete` would delete what is in these mounts, too. False: not all are
// gone.
bool unmount_rest(const std::string& id) {
  std::vector<std::string> targets;
  for (const auto& mount : all_mounts()) {
    const std::size_t at = mount.target.find('/' + id + '/');
    if (at == std::string::npos) continue;
    if (mount.target.find("/criu-root", at) != std::string::npos ||
        mount.target.find("/.criu.cgyard.", at) != std::string::npos) {
      targets.push_back(mount.target);
    }
  }
  try {
    unmount_all(targets);
  } catch (const Failure& failure) {
    log::error("{}", failure.what());
    return false;
  }
  for (const auto& target : targets) ::rmdir(target.c_str());
  return true;
}

// Podman's error message: "Error: no such container web" without its first word.
std::string reason(const Outcome& outcome) {
  std::string last;
  std::istringstream lines(outcome.err);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("Error: ")) return one_line(line.substr(7));
    if (!line.empty()) last = line;
  }
  return last.empty() ? fmt::format("podman ended with {}", outcome.status) : one_line(last);
}

// What CRIU, which runs below runc and podman, says in the log that podman's message names.
std::string reason_of_criu(const Outcome& outcome) {
  constexpr std::string_view kLog = "log file: ";
  const std::size_t at = outcome.err.find(kLog);
  if (at == std::string::npos) return reason(outcome);
  const std::string path = one_line(outcome.err.substr(at + kLog.size()));
  const std::string error = error_of_log(path);
  return error.empty() ? reason(outcome) : error;
}

Command restore_command(const std::string& podman) {
  return {{podman, "container", "restore", "--tcp-established", "--file-locks"}, {}, {}};
}

std::string failure_of_restore(const std::string& what, const Outcome& outcome) {
  if (outcome.ok()) return {};
  return fmt::format("{}: {}", what, outcome.status == kKilled ? kNoEnd : reason_of_criu(outcome));
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

json member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : json::object();
}

std::vector<std::string> keys_of(const json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

// What the container of this bundle (STORAGE/ID/userdata) is called now, by podman's own list; conmon
// knows how it was called when it was started. Empty: the list does not say.
std::string name_on_record(const std::string& bundle, const std::string& id) {
  const auto storage = std::filesystem::path(bundle).parent_path().parent_path();
  std::ifstream file(storage / "containers.json");
  const json all = json_or_discarded(file);
  if (!all.is_array()) return {};
  for (const auto& container : all) {
    if (!container.is_object() || text_of(container, "id") != id) continue;
    const auto names = container.find("names");
    if (names == container.end() || !names->is_array() || names->empty()) return {};
    return names->front().is_string() ? names->front().get<std::string>() : std::string();
  }
  return {};
}

// The OCI configuration has the mounts that --device adds, too. Podman itself makes those that are
// below a folder of the container's id.
std::vector<std::string> sources_of(const std::string& config, const std::string& id) {
  std::vector<std::string> sources;
  std::ifstream file(config);
  const json parsed = json_or_discarded(file);
  if (parsed.is_discarded()) throw Failure(fmt::format("cannot read {}", config));
  for (const auto& mount : parsed.value("mounts", json::array())) {
    if (!is_bind(mount)) continue;
    const std::string source = text_of(mount, "source");
    if (source.find('/' + id + '/') == std::string::npos) sources.push_back(source);
  }
  return sources;
}

}  // namespace

bool Podman::is_installed() const {
  if (command_.find('/') != std::string::npos) return ::access(command_.c_str(), X_OK) == 0;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + command_).c_str(), X_OK) == 0) return true;
  }
  return false;
}

std::string Podman::unusable() const {
  if (!is_installed()) return fmt::format("there is no {}; install podman", command_);
  if (::access(kPlugin, R_OK) != 0) {
    return fmt::format(
        "CRIU has no plugin of Ferry's ({}); install the package ferryd, or run: "
        "cmake --install build/release --prefix /usr",
        kPlugin);
  }
  return {};
}

std::optional<PodmanContainer> Podman::find(const std::string& name) const {
  const Outcome outcome =
      run({{command_, "container", "inspect", "--format", "json", "--", name}, {}, {}});
  if (!outcome.ok()) {
    if (outcome.err.find("no such container") != std::string::npos ||
        outcome.err.find("no container with name or ID") != std::string::npos) {
      return std::nullopt;
    }
    throw Failure(fmt::format("podman does not say what '{}' is: {}", name, reason(outcome)));
  }
  const json all = json_or_discarded(outcome.out);
  if (!all.is_array() || all.size() != 1) {
    throw Failure(fmt::format("podman does not say what '{}' is", name));
  }
  const json& inspected = all.front();
  const json state = member(inspected, "State"), host = member(inspected, "HostConfig");
  PodmanContainer container;
  container.id = text_of(inspected, "Id");
  container.name = text_of(inspected, "Name");
  container.status = text_of(state, "Status");
  container.pid = state.value("Pid", 0);
  container.image = text_of(inspected, "Image");
  container.image_name = text_of(inspected, "ImageName");
  container.pod = text_of(inspected, "Pod");
  container.removes_itself = host.value("AutoRemove", false);
  container.network_mode = text_of(host, "NetworkMode");
  container.static_folder = text_of(inspected, "StaticDir");
  container.networks = keys_of(member(member(inspected, "NetworkSettings"), "Networks"));
  std::vector<std::string> of_volumes;
  for (const auto& mount : inspected.value("Mounts", json::array())) {
    if (text_of(mount, "Type") != "volume") continue;
    container.volumes.push_back(text_of(mount, "Name"));
    of_volumes.push_back(text_of(mount, "Source"));
  }
  if (container.runs()) {
    container.sources = sources_of(text_of(inspected, "OCIConfigPath"), container.id);
  }
  std::erase_if(container.sources, [&](const std::string& source) {
    return std::count(of_volumes.begin(), of_volumes.end(), source) > 0;
  });
  return container;
}

std::string Podman::container_of(pid_t pid) {
  std::ifstream cgroups(fmt::format("/proc/{}/cgroup", pid));
  constexpr std::string_view kPrefix = "libpod-";
  for (std::string line; std::getline(cgroups, line);) {
    const std::size_t at = line.rfind(kPrefix);
    if (at == std::string::npos) continue;
    const std::string id = line.substr(at + kPrefix.size(), kIdDigits);
    if (id.size() == kIdDigits && id.find_first_not_of("0123456789abcdef") == std::string::npos) {
      return id;
    }
  }
  return {};
}

std::string Podman::name_of(pid_t pid, const std::string& id) {
  for (const pid_t ancestor : ancestors(pid)) {
    if (program_name(ancestor) != "conmon" || user_of(ancestor) != 0) continue;
    const auto arguments = arguments_of(ancestor);
    if (std::count(arguments.begin(), arguments.end(), id) == 0) continue;
    const std::string name = name_on_record(value_of(arguments, "-b"), id);
    return printable(name.empty() ? value_of(arguments, "-n") : name);
  }
  return {};
}

std::vector<pid_t> Podman::processes_of(const std::string& id) {
  std::vector<pid_t> processes = all_processes();
  std::erase_if(processes, [&](pid_t pid) { return container_of(pid) != id; });
  return processes;
}

bool Podman::has_image(const std::string& id) const {
  return run({{command_, "image", "exists", "--", id}, {}, {}}).ok();
}
bool Podman::has_network(const std::string& name) const {
  return run({{command_, "network", "exists", "--", name}, {}, {}}).ok();
}
bool Podman::has_volume(const std::string& name) const {
  return run({{command_, "volume", "exists", "--", name}, {}, {}}).ok();
}

std::uint64_t Podman::free_disk() const {
  const Outcome outcome = run({{command_, "info", "--format", "{{.Store.GraphRoot}}"}, {}, {}});
  if (!outcome.ok()) throw Failure(fmt::format("podman info: {}", reason(outcome)));
  struct statvfs status {};
  const std::string folder = one_line(outcome.out);
  if (::statvfs(folder.c_str(), &status) != 0) {
    throw Failure(fmt::format("cannot see how full {} is: {}", folder, error_text(errno)));
  }
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

bool Podman::is_at_work(const std::string& archive) {
  const auto processes = all_processes();
  return std::any_of(processes.begin(), processes.end(), [&](pid_t pid) {
    const auto arguments = arguments_of(pid);
    return std::count(arguments.begin(), arguments.end(), archive) > 0;
  });
}

// The archive is not compressed: that takes longer than it saves at 1 Gbit/s (docs/containers.md).
std::string Podman::checkpoint(const PodmanContainer& container, const std::string& archive,
                               std::atomic<pid_t>* podman) const {
  Command command{{command_, "container", "checkpoint", "--tcp-established", "--file-locks",
                   "--compress", "none", "--export", archive, container.id},
                  {},
                  {}};
  command.pid = podman;
  const Outcome outcome = run(command, kNoLimit);
  if (outcome.ok()) return {};
  // Clears up after the dump, also when somebody else has killed CRIU.
  if (container_of(container.pid) == container.id) {
    end_repair(container.pid);
    remove_network_lock(container.pid);
    thaw(container.pid);
  }
  if (outcome.status == kKilled) return kNoEnd;
  // runc tells where the log is, but podman drops that.
  const std::string error = error_of_log(container.static_folder + "/dump.log");
  return error.empty() ? reason_of_criu(outcome) : error;
}

std::string Podman::import(const std::string& archive, std::atomic<pid_t>* podman) const {
  Command command = restore_command(command_);
  command.argv.insert(command.argv.end(), {"--import", archive});
  command.pid = podman;
  return failure_of_restore("podman container restore", run(command, kNoLimit));
}

std::string Podman::restore(const PodmanContainer& container, std::chrono::milliseconds timeout,
                            bool* killed) const {
  Command command = restore_command(command_);
  command.argv.push_back(container.id);
  const Outcome outcome = run(command, timeout);
  *killed = outcome.status == kKilled;
  return failure_of_restore("podman container restore " + container.name, outcome);
}

void Podman::end_restore(const std::string& id) const {
  for (const pid_t pid : processes_named("conmon")) {
    const auto arguments = arguments_of(pid);
    if (std::count(arguments.begin(), arguments.end(), id) == 0) continue;
    silence(pid);
    kill_tree(pid);
    if (!unmount_rest(id)) continue;
    // Podman does not know that runc has the container.
    const std::string runc = value_of(arguments, "-r");
    if (!runc.empty()) run({{runc, "delete", "--force", id}, {}, {}});
  }
  // Else the container's network would be there twice.
  run({{command_, "container", "cleanup", "--", id}, {}, {}});
}

std::string Podman::remove(const std::string& id, bool kill) const {
  Command command{{command_, "rm", "--ignore", "--volumes"}, {}, {}};
  if (kill) command.argv.insert(command.argv.end(), {"--force", "--time", "0"});
  command.argv.insert(command.argv.end(), {"--", id});
  const Outcome outcome = run(command, std::chrono::minutes(5));
  return outcome.ok() ? std::string() : reason(outcome);
}

std::string Podman::remove_volume(const std::string& name) const {
  const Outcome outcome = run({{command_, "volume", "rm", "--", name}, {}, {}});
  const bool gone = outcome.ok() || !has_volume(name);
  return gone ? std::string() : reason(outcome);
}

}  // namespace ferry::host
