#include "launch/kernel_devices.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string_view>

#include "base/unique_fd.h"

namespace ferry::launch {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) found.push_back(entry.path());
  return found;
}

// Rights, a device cgroup, or another network namespace may forbid it.
bool can_open(const std::string& node) {
  return static_cast<bool>(UniqueFd(::open(node.c_str(), O_RDWR | O_CLOEXEC)));
}

bool has_gid_of(const fs::path& port, const std::vector<in6_addr>& addresses) {
  const auto gids = entries(port / "gids");
  return std::any_of(gids.begin(), gids.end(), [&](const fs::path& file) {
    in6_addr gid{};
    if (::inet_pton(AF_INET6, first_line(file).c_str(), &gid) != 1) return false;
    return std::any_of(addresses.begin(), addresses.end(), [&](const in6_addr& address) {
      return std::memcmp(&address, &gid, sizeof gid) == 0;
    });
  });
}

bool is_usable(const fs::path& port, const std::vector<in6_addr>& addresses) {
  if (!first_line(port / "state").ends_with("ACTIVE")) return false;
  const std::string link = first_line(port / "link_layer");
  return link == "InfiniBand" || (link == "Ethernet" && has_gid_of(port, addresses));
}

}  // namespace

std::vector<in6_addr> own_addresses() {
  std::vector<in6_addr> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if ((each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    in6_addr address{};
    if (each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 found{};
      std::memcpy(&found, each->ifa_addr, sizeof found);
      address = found.sin6_addr;
    } else if (each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET) {
      sockaddr_in found{};
      std::memcpy(&found, each->ifa_addr, sizeof found);
      address.s6_addr[10] = address.s6_addr[11] = 0xFF;
      std::memcpy(&address.s6_addr[12], &found.sin_addr, sizeof found.sin_addr);
    } else {
      continue;
    }
    addresses.push_back(address);
  }
  ::freeifaddrs(list);
  return addresses;
}

std::vector<std::string> usable_kernel_devices(const KernelFolders& folders,
                                               const std::vector<in6_addr>& addresses) {
  constexpr std::string_view kNode = "uverbs";
  std::map<unsigned long, std::string> found;  // by the number of the node
  for (const auto& folder : entries(folders.sys + "/class/infiniband_verbs")) {
    const std::string node = folder.filename(), name = first_line(folder / "ibdev");
    if (!node.starts_with(kNode) || name.empty()) continue;
    if (!can_open(folders.dev + "/infiniband/" + node)) continue;
    const auto ports = entries(folders.sys + "/class/infiniband/" + name + "/ports");
    const bool is_one = std::any_of(ports.begin(), ports.end(),
                                    [&](const auto& port) { return is_usable(port, addresses); });
    if (is_one) found.emplace(std::strtoul(node.c_str() + kNode.size(), nullptr, 10), name);
  }
  std::vector<std::string> names;
  for (const auto& [number, name] : found) names.push_back(name);
  return names;
}

std::vector<std::string> with_provider(std::vector<std::string> devices, void* verbs) {
  if (devices.empty()) return devices;
  const auto get_list =
      reinterpret_cast<decltype(&ibv_get_device_list)>(::dlsym(verbs, "ibv_get_device_list"));
  const auto free_list =
      reinterpret_cast<decltype(&ibv_free_device_list)>(::dlsym(verbs, "ibv_free_device_list"));
  const auto name_of =
      reinterpret_cast<decltype(&ibv_get_device_name)>(::dlsym(verbs, "ibv_get_device_name"));
  if (get_list == nullptr || free_list == nullptr || name_of == nullptr) return {};
  std::set<std::string> shown;
  ibv_device** const list = get_list(nullptr);
  for (ibv_device** each = list; each != nullptr && *each != nullptr; ++each)
    shown.insert(name_of(*each));
  if (list != nullptr) free_list(list);
  std::erase_if(devices, [&](const std::string& name) { return !shown.contains(name); });
  return devices;
}

}  // namespace ferry::launch
