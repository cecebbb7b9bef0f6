#include "host/units/container/orphans.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgets that C++ includes it
}

#include "base/failure.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

constexpr int kGlanceMs = 200;   // between looks whether ferryd ends
constexpr int kReapLooks = 100;  // 10 ms apart, for the new parent to reap the program

// struct pidfd_info of <linux/pidfd.h> (6.15), which Debian 12 does not have.
struct PidfdInfo {
  std::uint64_t mask;
  std::uint64_t cgroup;
  std::array<std::uint32_t, 11> ids;
  std::int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr unsigned long kPidfdGetInfo = _IOWR(0xFF, 11, PidfdInfo);
constexpr std::uint64_t kPidfdInfoExit = 1u << 3;

int exit_status(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

// The status of a process that has ended: while it is a zombie /proc has it, later the kernel tells
// it to the holder of a pidfd.
std::optional<int> status_of(int pidfd, pid_t pid) {
  PidfdInfo info{};
  info.mask = kPidfdInfoExit;
  if (::ioctl(pidfd, kPidfdGetInfo, &info) == 0 && (info.mask & kPidfdInfoExit) != 0) {
    return exit_status(info.exit_code);
  }
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string stat;
  std::getline(file, stat);
  const std::size_t name_end = stat.rfind(") "), last = stat.rfind(' ');
  if (name_end == std::string::npos || stat.at(name_end + 2) != 'Z') return std::nullopt;
  return exit_status(std::stoi(stat.substr(last + 1)));
}

// The container's process; nothing when that has ended, also if another process has its pid now.
UniqueFd process_of(const Container& container) {
  UniqueFd pidfd(::pidfd_open(container.pid, 0));
  struct stat status {};
  const bool is_another =
      !container.netns.empty() && (::stat(container.netns.c_str(), &status) != 0 ||
                                   namespace_inode(container.pid, "net") != status.st_ino);
  return is_another ? UniqueFd() : std::move(pidfd);
}

}  // namespace

Orphans::Orphans(const std::vector<Container>& containers, const std::atomic<bool>& stopping)
    : stopping_(stopping) {
  for (const auto& container : containers) {
    if (container.state != "running" || !container.restored) continue;
    watchers_.emplace_back([this, container] { watch(container); });
  }
}

Orphans::~Orphans() {
  for (auto& watcher : watchers_) watcher.join();
}

void Orphans::watch(const Container& container) {
  int status = kUnknownStatus;
  if (const UniqueFd process = process_of(container)) {
    pollfd end{process.get(), POLLIN, 0};
    while (::poll(&end, 1, kGlanceMs) <= 0) {
      if (stopping_) return;
    }
    for (int i = 0; i < kReapLooks && !stopping_; ++i) {
      if (const auto seen = status_of(process.get(), container.pid)) {
        status = *seen;
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  report_failure([&] {
    if (container.runtime->end(container, status)) {
      log::info("'{}', restored before this ferryd began, has ended with status {}", container.name,
                status);
    }
  });
}

}  // namespace ferry::host
