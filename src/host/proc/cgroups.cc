#include "host/proc/cgroups.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "base/failure.h"
#include "host/proc/mounts.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kGlance{20};
constexpr std::chrono::seconds kEndLimit{10};  // for processes that were killed to be gone

std::set<std::string> words_of(const std::string& list) {
  std::set<std::string> words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) words.insert(word);
  return words;
}

// `controllers`: empty for version 2.
bool is_hierarchy_of(const Mount& mount, const std::set<std::string>& controllers) {
  if (controllers.empty()) return mount.type == "cgroup2";
  const auto offered = words_of(mount.options);
  return mount.type == "cgroup" &&
         std::includes(offered.begin(), offered.end(), controllers.begin(), controllers.end());
}

}  // namespace

std::vector<std::string> cgroups_at(const std::string& path) {
  const bool is_absolute = path.starts_with('/');
  const fs::path inner = fs::path("/" + path).lexically_normal().relative_path();
  const auto mounts = all_mounts();
  std::vector<std::string> cgroups;
  std::ifstream file("/proc/thread-self/cgroup");
  // 4:cpu,cpuacct:/system.slice, or 0::/system.slice for version 2.
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string controllers, own;
    std::getline(fields, controllers, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, own);
    const auto mount = std::find_if(mounts.begin(), mounts.end(), [&](const Mount& entry) {
      return is_hierarchy_of(entry, words_of(controllers));
    });
    if (mount == mounts.end()) continue;
    fs::path cgroup = mount->target;
    if (!is_absolute) cgroup /= fs::path(own).lexically_relative(mount->root);
    cgroups.push_back((cgroup / inner).lexically_normal());
  }
  return cgroups;
}

bool has_processes(const std::string& cgroup) {
  std::ifstream processes(cgroup + "/cgroup.procs");
  pid_t first = 0;
  return static_cast<bool>(processes >> first);
}

void remove_cgroup(const std::string& cgroup) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(cgroup, ignored)) {
    if (entry.is_directory(ignored)) remove_cgroup(entry.path());
  }
  const auto limit = std::chrono::steady_clock::now() + kEndLimit;
  while (::rmdir(cgroup.c_str()) != 0 && errno != ENOENT) {
    const int error = errno;
    if (std::chrono::steady_clock::now() > limit) {
      throw Failure(fmt::format("cannot remove {}: {}", cgroup, error_text(error)));
    }
    std::ifstream processes(cgroup + "/cgroup.procs");
    for (pid_t pid = 0; processes >> pid;) {
      if (pid > 0) ::kill(pid, SIGKILL);  // 0: a process outside of this pid namespace
    }
    std::this_thread::sleep_for(kGlance);
  }
}

}  // namespace ferry::host
