#include "host/image/late_pages.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <vector>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgets that C++ includes it
}

#include "base/failure.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "host/peers/this_host.h"
#include "host/proc/process_tree.h"
#include "host/proc/subprocess.h"
#include "late_pages/handover.h"

namespace ferry::host {
namespace {

constexpr std::chrono::seconds kStartLimit{5};   // for ferry-pages to be there
constexpr std::chrono::milliseconds kGlance{5};  // between looks whether all pages are there

Failure cannot(const std::string& what) {
  return Failure(fmt::format("cannot {}: {}", what, error_text(errno)));
}

UniqueFd description_of(const std::vector<late_pages::Described>& processes) {
  UniqueFd file(::memfd_create("ferry-pages", MFD_CLOEXEC));
  if (!file) throw cannot("make a file in memory");
  const auto description = late_pages::describe(processes);
  for (std::size_t done = 0; done < description.size();) {
    const ssize_t part = ::write(file.get(), description.data() + done, description.size() - done);
    if (part <= 0) throw cannot("write a file in memory");
    done += static_cast<std::size_t>(part);
  }
  return file;
}

// By ferry-pages, at its end: it removes the file before it unlocks it.
bool is_removed(const UniqueFd& lock) {
  struct stat facts {};
  return ::fstat(lock.get(), &facts) == 0 && facts.st_nlink == 0;
}

std::string lost_memory(const std::string& program) {
  return fmt::format(
      "'{}' has lost memory, because both processes of its ferry-pages were killed; end it, and "
      "start it again",
      program);
}

}  // namespace

LatePages::LatePages(const ThisHost& host)
    : helper_(host.pages_helper), folder_(host.state_directory + "/late-pages") {}

// The start time tells the process from an earlier one of this pid.
std::string LatePages::lock_of(pid_t root) const {
  return fmt::format("{}/{}-{}", folder_, root, start_time(root));
}

void LatePages::hand_over(pid_t root, const std::map<std::int32_t, pid_t>& pids,
                          const std::vector<precopy::PageServer::Later>& later,
                          const precopy::PageStore& store) const {
  if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) throw cannot("make " + folder_);
  const std::string path = lock_of(root);
  const UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) throw cannot("lock " + path);
  try {
    start(path, lock.get(), pids, later, store);
  } catch (const Failure&) {
    ::unlink(path.c_str());
    throw;
  }
}

void LatePages::start(const std::string& path, int lock, const std::map<std::int32_t, pid_t>& pids,
                      const std::vector<precopy::PageServer::Later>& later,
                      const precopy::PageStore& store) const {
  std::vector<late_pages::Described> described;
  std::vector<UniqueFd> pidfds;
  Command command;
  command.argv = {helper_, path};
  command.own_session = true;
  for (const auto& [process, userfaultfd, pages] : later) {
    const auto pid = pids.find(process);
    if (pid == pids.end()) throw Failure(fmt::format("process {} is not restored", process));
    described.push_back({pid->second, pages});
    pidfds.emplace_back(::pidfd_open(pid->second, 0));
    if (!pidfds.back()) throw cannot(fmt::format("open process {}", pid->second));
  }
  const UniqueFd description = description_of(described);
  command.descriptors = {description.get(), STDERR_FILENO, lock};
  for (std::size_t i = 0; i < later.size(); ++i) {
    command.descriptors.push_back(later[i].userfaultfd.get());
    command.descriptors.push_back(store.file_of(later[i].process));
    command.descriptors.push_back(pidfds[i].get());
  }
  const Outcome outcome = run(command, kStartLimit);
  if (!outcome.ok()) {
    throw Failure(fmt::format("{} has ended with status {}", helper_, outcome.status));
  }
}

void LatePages::wait_for(const std::string& program, pid_t root,
                         std::chrono::steady_clock::time_point deadline,
                         const std::function<void()>& go_on) const {
  const std::string path = lock_of(root);
  const UniqueFd lock(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!lock && errno == ENOENT) return;
  if (!lock) throw cannot("open " + path);
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Failure(fmt::format("the memory of '{}' is still being filled in; try again", program));
    }
    go_on();
    std::this_thread::sleep_for(kGlance);
  }
  if (!is_removed(lock) && path == lock_of(root)) throw Failure(lost_memory(program));
}

void LatePages::wait(const std::string& program, pid_t root,
                     std::chrono::steady_clock::time_point deadline,
                     const std::function<void()>& go_on) const {
  // A process may be the root of what has come here, or below it, or above.
  for (const pid_t pid : process_tree(root)) wait_for(program, pid, deadline, go_on);
  for (const pid_t pid : ancestors(root)) wait_for(program, pid, deadline, go_on);
}

void LatePages::tidy() const {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, none)) {
    const UniqueFd lock(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 || is_removed(lock)) continue;
    const pid_t root = static_cast<pid_t>(std::atoi(entry.path().filename().c_str()));
    if (entry.path() != lock_of(root) || !is_alive(root)) {
      ::unlink(entry.path().c_str());
      continue;
    }
    log::error("{}", lost_memory(program_name(root).value_or(fmt::format("process {}", root))));
  }
}

}  // namespace ferry::host
