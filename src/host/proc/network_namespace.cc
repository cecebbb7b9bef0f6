#include "host/proc/network_namespace.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

constexpr char kNamedNetworks[] = "/run/netns";  // where ip-netns(8) and most runtimes name them

}  // namespace

std::uint64_t inode_of_network(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

std::string network_of(pid_t pid) {
  const std::uint64_t inode = namespace_inode(pid, "net");
  if (inode == namespace_inode(::getpid(), "net")) return {};
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kNamedNetworks, ignored)) {
    if (inode_of_network(entry.path()) == inode) return entry.path();
  }
  return fmt::format("/proc/{}/ns/net", pid);
}

}  // namespace ferry::host
