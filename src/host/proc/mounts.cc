#include "host/proc/mounts.h"

#include <fmt/core.h>
#include <sys/mount.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/failure.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

// mountinfo has \040 for a blank, and the like for a few other characters.
std::string unescaped(const std::string& field) {
  std::string plain;
  for (std::size_t i = 0; i < field.size(); ++i) {
    if (field[i] == '\\' && i + 3 < field.size()) {
      plain += static_cast<char>(std::stoi(field.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      plain += field[i];
    }
  }
  return plain;
}

}  // namespace

std::vector<Mount> all_mounts() {
  std::vector<Mount> mounts;
  std::ifstream file("/proc/thread-self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string skipped, root, target;
    fields >> skipped >> skipped >> skipped >> root >> target;
    while (fields >> skipped && skipped != "-") continue;
    Mount& mount = mounts.emplace_back();
    fields >> mount.type >> skipped >> mount.options;
    mount.target = unescaped(target);
    mount.root = unescaped(root);
  }
  return mounts;
}

std::vector<std::string> targets_below(const std::string& folder) {
  std::error_code error;
  const std::string path = fs::weakly_canonical(folder, error);
  if (error || path.empty()) return {};
  std::vector<std::string> targets;
  for (auto& mount : all_mounts()) {
    if (mount.target.starts_with(path + "/")) targets.push_back(std::move(mount.target));
  }
  return targets;
}

void unmount_all(const std::vector<std::string>& targets) {
  // Otherwise mounts below a target would also disappear from all other places with which they are shared.
  for (const auto& target : targets) ::mount(nullptr, target.c_str(), nullptr, MS_PRIVATE, nullptr);
  std::string what;
  // The innermost first.
  for (auto target = targets.rbegin(); target != targets.rend(); ++target) {
    if (::umount2(target->c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0) {
      what = fmt::format("cannot unmount {}: {}", *target, error_text(errno));
    }
  }
  if (!what.empty()) throw Failure(what);
}

}  // namespace ferry::host
