#include "host/proc/kernel_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "base/failure.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(entry->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::string line_of(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// "fe80:0000:0000:0000:5054:00ff:fe12:3456"; nothing for an empty entry.
std::optional<port::Address> parse_gid(const std::string& text) {
  constexpr std::size_t kGroup = 5, kText = 8 * kGroup - 1;
  if (text.size() != kText) return std::nullopt;
  port::Address gid;
  for (std::size_t group = 0; group < 8; ++group) {
    unsigned value = 0;
    const char* const begin = text.data() + group * kGroup;
    const auto [stop, error] = std::from_chars(begin, begin + 4, value, 16);
    if (error != std::errc() || stop != begin + 4) return std::nullopt;
    gid.bytes[2 * group] = static_cast<std::byte>(value >> 8);
    gid.bytes[2 * group + 1] = static_cast<std::byte>(value & 0xff);
  }
  if (gid == port::Address{}) return std::nullopt;
  return gid;
}

}  // namespace

std::vector<KernelDevice> kernel_devices(const std::string& sysfs) {
  std::vector<KernelDevice> devices;
  for (const auto& path : entries_of(sysfs)) {
    // "4: ACTIVE"
    devices.push_back({path.filename(), line_of(path / "ports/1/state").starts_with("4:")});
  }
  return devices;
}

std::vector<port::Address> kernel_gids(const std::string& device, const std::string& sysfs) {
  std::vector<port::Address> gids;
  for (const auto& port : entries_of(fs::path(sysfs) / device / "ports")) {
    for (const auto& entry : entries_of(port / "gids")) {
      if (const auto gid = parse_gid(line_of(entry))) gids.push_back(*gid);
    }
  }
  return gids;
}

std::vector<port::Address> KernelGids::of(const std::string& device) {
  constexpr std::chrono::minutes kRemembered{1};
  auto addresses = addresses_of_interfaces();
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const auto [entry, is_new] = seen_.try_emplace(device);
  Seen& seen = entry->second;
  if (is_new || now - seen.at > kRemembered || seen.addresses != addresses)
    seen = {kernel_gids(device), std::move(addresses), now};
  return seen.gids;
}

void KernelGids::forget() {
  constexpr std::chrono::seconds kJust{1};
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::erase_if(seen_, [&](const auto& entry) { return now - entry.second.at > kJust; });
}

std::vector<Descriptor> opened_device_files(pid_t pid) {
  auto descriptors = descriptors_of(pid);
  std::erase_if(descriptors, [](const Descriptor& descriptor) {
    return !descriptor.target.starts_with("/dev/infiniband/uverbs");
  });
  return descriptors;
}

std::vector<Descriptor> opened_rdma_cm_files(pid_t pid) {
  auto descriptors = descriptors_of(pid);
  std::erase_if(descriptors, [](const Descriptor& descriptor) {
    return descriptor.target != "/dev/infiniband/rdma_cm";
  });
  return descriptors;
}

std::vector<std::string> opened_kernel_devices(pid_t pid, const std::string& sysfs) {
  std::vector<std::string> devices;
  for (const auto& descriptor : opened_device_files(pid)) {
    const fs::path target = descriptor.target;
    std::string device = line_of(fs::path(sysfs) / target.filename() / "ibdev");
    if (!device.empty()) devices.push_back(std::move(device));
  }
  return devices;
}

std::optional<DeviceNode> node_of(const std::string& device, const std::string& sysfs) {
  for (const auto& path : entries_of(sysfs)) {
    if (line_of(path / "ibdev") != device) continue;
    const std::string number = line_of(path / "dev");  // "231:192"
    DeviceNode node{path.filename()};
    const char* const end = number.data() + number.size();
    const auto [colon, error] = std::from_chars(number.data(), end, node.major);
    if (error != std::errc() || colon == end || *colon != ':') return std::nullopt;
    const auto [stop, wrong] = std::from_chars(colon + 1, end, node.minor);
    if (wrong != std::errc() || stop != end) return std::nullopt;
    return node;
  }
  return std::nullopt;
}

std::string to_string(const DeviceNode& node) {
  return fmt::format("{} ({}:{})", node.name, node.major, node.minor);
}

void need_node(const std::string& device, const std::string& node, const std::string& sysfs) {
  const auto here = node_of(device, sysfs);
  if (here && to_string(*here) == node) return;
  throw Failure(
      fmt::format("{} is {} here, and the container's /dev has {}; let the RDMA devices of "
                  "both hosts have the same numbers",
                  device, here ? to_string(*here) : "not in /dev/infiniband", node));
}

std::string choose_kernel_device(const std::vector<KernelDevice>& devices,
                                 const std::string& name) {
  std::vector<std::string> active;
  for (const auto& device : devices) {
    if (device.name == name) return name;
    if (device.is_active) active.push_back(device.name);
  }
  if (active.size() == 1) return active.front();
  throw Failure(fmt::format(
      "there is no RDMA device {}, and {}", name,
      active.empty()
          ? "no other with an active port; with --to-device ferry0 the program goes on with "
            "Ferry's own"
          : "more than one other; name one of them (--to-device)"));
}

bool has_active_port(const std::vector<KernelDevice>& devices, const std::string& name) {
  return std::any_of(devices.begin(), devices.end(), [&](const KernelDevice& device) {
    return device.name == name && device.is_active;
  });
}

void need_kernel_device(const std::vector<KernelDevice>& devices, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& device : devices) names.push_back(device.name);
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  throw Failure(fmt::format(
      "there is no RDMA device {}; {}", printable(name),
      names.empty() ? "the kernel has none" : fmt::format("there is {}", fmt::join(names, ", "))));
}

}  // namespace ferry::host
