#include "host/guest/nics.h"

#include <fmt/core.h>
#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "base/failure.h"
#include "base/unique_fd.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

std::vector<Nic> all_nics() {
  std::vector<Nic> nics;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return nics;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_PACKET) continue;
    const auto* link = reinterpret_cast<const sockaddr_ll*>(each->ifa_addr);
    if (link->sll_hatype != ARPHRD_ETHER || link->sll_halen != 6) continue;
    const auto* mac = link->sll_addr;
    nics.push_back({each->ifa_name,
                    fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", mac[0], mac[1], mac[2],
                                mac[3], mac[4], mac[5]),
                    link->sll_ifindex, (each->ifa_flags & IFF_UP) != 0});
  }
  return nics;
}

std::string line_of(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  return names;
}

// The interfaces of an RDMA device: rdma_rxe tells its one in `parent`, a device of a bus has them below `device`, and
// the others tell of which interface they have the first GID of each port.
std::set<std::string> interfaces_of(const fs::path& device) {
  std::set<std::string> interfaces{line_of(device / "parent")};
  for (auto& name : names_in(device / "device/net")) interfaces.insert(std::move(name));
  for (const auto& port : names_in(device / "ports")) {
    interfaces.insert(line_of(device / "ports" / port / "gid_attrs/ndevs/0"));
  }
  interfaces.erase("");
  return interfaces;
}

// A soft device is on no bus. siw is the one with a node type of iWARP ("4: RNIC").
std::string type_of(const fs::path& device) {
  std::error_code ignored;
  if (fs::exists(device / "device", ignored)) return {};
  if (fs::exists(device / "parent", ignored)) return "rxe";
  return line_of(device / "node_type").starts_with("4:") ? "siw" : "";
}

}  // namespace

std::string mac_text(std::string mac) {
  std::transform(mac.begin(), mac.end(), mac.begin(),
                 [](unsigned char each) { return static_cast<char>(std::tolower(each)); });
  return mac;
}

bool is_hardware(const std::string& name) {
  std::error_code ignored;
  return fs::exists(fs::path("/sys/class/net") / name / "device", ignored);
}

bool has_interface(const std::string& name) {
  return ::if_nametoindex(name.c_str()) != 0;
}

int mtu_of(const std::string& name) {
  const UniqueFd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  if (::ioctl(any.get(), SIOCGIFMTU, &request) == 0) return request.ifr_mtu;
  throw Failure(fmt::format("{}: {}", name, error_text(errno)));
}

std::optional<Nic> nic_of(const std::string& mac) {
  auto nics = all_nics();
  std::erase_if(nics, [&](const Nic& nic) { return nic.mac != mac_text(mac); });
  const auto rank = [](const Nic& nic) { return std::pair(!is_hardware(nic.name), nic.index); };
  const auto first =
      std::min_element(nics.begin(), nics.end(),
                       [&](const Nic& one, const Nic& two) { return rank(one) < rank(two); });
  if (first == nics.end()) return std::nullopt;
  return *first;
}

std::vector<RdmaDevice> rdma_devices_on(const std::string& interface, const std::string& sysfs) {
  std::vector<RdmaDevice> devices;
  for (const auto& device : kernel_devices(sysfs)) {
    const fs::path path = fs::path(sysfs) / device.name;
    if (interfaces_of(path).contains(interface)) devices.push_back({device.name, type_of(path)});
  }
  return devices;
}

}  // namespace ferry::host
