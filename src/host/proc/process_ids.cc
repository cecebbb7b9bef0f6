#include "host/proc/process_ids.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "host/proc/process_tree.h"

namespace ferry::host {

std::set<pid_t> ids_of_host(pid_t root) {
  std::set<pid_t> ids;
  const std::uint64_t ours = namespace_inode(::getpid(), "pid");
  for (const pid_t pid : process_tree(root)) {
    if (namespace_inode(pid, "pid") != ours) continue;
    std::error_code error;
    const std::string threads = fmt::format("/proc/{}/task", pid);
    for (auto thread = std::filesystem::directory_iterator(threads, error);
         !error && thread != std::filesystem::directory_iterator(); thread.increment(error)) {
      ids.insert(std::atoi(thread->path().filename().c_str()));
    }
  }
  return ids;
}

std::string find_taken(const std::set<pid_t>& ids, const std::string& host,
                       const std::string& program, const IsTaken& is_taken) {
  for (const pid_t id : ids) {
    if (!is_taken(id)) continue;
    return fmt::format(
        "{} has a process {} ({}) already, and '{}' keeps its ids; a program in a container has "
        "ids "
        "of its own",
        host, id, program_name(id).value_or("?"), program);
  }
  return {};
}

bool is_taken_here(pid_t id) {
  std::error_code error;
  return std::filesystem::exists(fmt::format("/proc/{}", id), error);
}

}  // namespace ferry::host
