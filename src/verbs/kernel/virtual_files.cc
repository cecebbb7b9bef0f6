#include "verbs/kernel/virtual_files.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>

#include "verbs/devices.h"
#include "verbs/kernel/fork.h"
#include "verbs/process.h"
#include "verbs/stock.h"

namespace ferry::verbs {
namespace {

constexpr std::string_view kDevices = "/sys/class/infiniband";
constexpr std::string_view kVerbs = "/sys/class/infiniband_verbs";
constexpr std::string_view kCm = "/sys/class/misc/rdma_cm";
constexpr std::string_view kNodes = "/dev/infiniband";
constexpr std::array kRoots = {kVerbs, kDevices, kCm, kNodes};

// Numbers as the kernel has them (include/uapi/rdma: ABI versions; drivers/infiniband/core).
constexpr unsigned kVerbsMajor = 231, kVerbsMinorBase = 192;
constexpr unsigned kMiscMajor = 10, kCmMinor = 58;

thread_local int system_files_only = 0;

template <typename... Arguments>
std::string print(const char* format, Arguments... arguments) {
  char text[128];
  std::snprintf(text, sizeof text, format, arguments...);
  return text;
}

std::string guid_text(std::uint64_t guid) {
  return print("%04x:%04x:%04x:%04x\n", static_cast<unsigned>(guid >> 48 & 0xffff),
               static_cast<unsigned>(guid >> 32 & 0xffff),
               static_cast<unsigned>(guid >> 16 & 0xffff), static_cast<unsigned>(guid & 0xffff));
}

std::string gid_text(const ibv_gid& gid) {
  std::string text;
  for (int i = 0; i < 16; i += 2) {
    text += print("%02x%02x%c", gid.raw[i], gid.raw[i + 1], i == 14 ? '\n' : ':');
  }
  return text;
}

const char* state_text(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_NOP: return "0: NOP\n";
    case IBV_PORT_DOWN: return "1: DOWN\n";
    case IBV_PORT_INIT: return "2: INIT\n";
    case IBV_PORT_ARMED: return "3: ARMED\n";
    case IBV_PORT_ACTIVE: return "4: ACTIVE\n";
    case IBV_PORT_ACTIVE_DEFER: return "5: ACTIVE_DEFER\n";
  }
  return "0: NOP\n";
}

const char* physical_state_text(std::uint8_t state) {
  constexpr std::array kNames = {"0: <unknown>\n",      "1: Sleep\n",         "2: Polling\n",
                                 "3: Disabled\n",       "4: PortConfTrain\n", "5: LinkUp\n",
                                 "6: LinkErrRecover\n", "7: Phy Test\n"};
  return kNames[state < kNames.size() ? state : 0];
}

// active_width and active_speed are codes (clause 14.2.5.6, PortInfo).
std::string rate_text(const ibv_port_attr& port) {
  struct Speed {
    std::uint8_t code;
    unsigned hundred_megabits;  // of one lane
    const char* name;
  };
  constexpr std::array kSpeeds = {Speed{1, 25, ""},       Speed{2, 50, " DDR"},
                                  Speed{4, 100, " QDR"},  Speed{8, 100, " FDR10"},
                                  Speed{16, 140, " FDR"}, Speed{32, 250, " EDR"},
                                  Speed{64, 500, " HDR"}, Speed{128, 1000, " NDR"}};
  unsigned lanes = 1;
  switch (port.active_width) {
    case 2: lanes = 4; break;
    case 4: lanes = 8; break;
    case 8: lanes = 12; break;
    case 16: lanes = 2; break;
    default: break;
  }
  Speed speed = kSpeeds[0];
  for (const Speed& s : kSpeeds) {
    if (s.code == port.active_speed) speed = s;
  }
  const unsigned rate = speed.hundred_megabits * lanes;
  return print("%u%s Gb/sec (%uX%s)\n", rate / 10, rate % 10 != 0 ? ".5" : "", lanes, speed.name);
}

// All files of ours, by absolute path. Directories follow from the files in them.
struct Tree {
  std::map<std::string, VirtualFile, std::less<>> files;

  void file(std::string path, std::string text) {
    files[std::move(path)] = {PathKind::kFile, std::move(text), {}, false, 0};
  }
  void node(std::string path, dev_t number) {
    files[std::move(path)] = {PathKind::kDevice, {}, {}, false, number};
  }
};

// What the files of a device show. The port's facts are those of the device's first open context in this process, which
// shows the same for life; without such a context, those of the device itself. The counters are those of all open
// contexts of the device in this process.
struct Facts {
  device::PortFacts port;
  std::vector<device::Counter> counters;
};

Facts facts_of(const Device& device, device::Rnic& rnic) {
  Facts facts;
  bool known = false;
  if (Process* p = process_if_any()) {
    std::lock_guard lock(p->mutex);
    for (Context* context : p->contexts) {
      if (context->shell.verbs.context.device != &device.device || context->abandoned) continue;
      context->device->counters(&facts.counters);
      if (known) continue;
      known = context->device->query_port(1, &facts.port.attributes) == 0;
      ibv_gid_entry gid{};
      for (unsigned i = 0; known && i < static_cast<unsigned>(facts.port.attributes.gid_tbl_len);
           ++i) {
        if (context->device->query_gid(1, i, &gid) == 0) facts.port.gids.push_back(gid);
      }
    }
  }
  if (!known) rnic.query(&facts.port);
  return facts;
}

void add_port(Tree& tree, const std::string& port, const Facts& facts, const std::string& netdev) {
  const ibv_port_attr& a = facts.port.attributes;
  tree.file(port + "cap_mask", print("0x%08x\n", a.port_cap_flags));
  tree.file(port + "has_smi", "0\n");
  tree.file(port + "lid", print("0x%x\n", a.lid));
  tree.file(port + "lid_mask_count", print("%u\n", a.lmc));
  tree.file(port + "link_layer",
            a.link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand\n" : "Ethernet\n");
  tree.file(port + "phys_state", physical_state_text(a.phys_state));
  tree.file(port + "rate", rate_text(a));
  tree.file(port + "sm_lid", print("0x%x\n", a.sm_lid));
  tree.file(port + "sm_sl", print("%u\n", a.sm_sl));
  tree.file(port + "state", state_text(a.state));
  tree.file(port + "pkeys/0", "0xffff\n");
  for (const ibv_gid_entry& gid : facts.port.gids) {
    const std::string index = std::to_string(gid.gid_index);
    tree.file(port + "gids/" + index, gid_text(gid.gid));
    tree.file(port + "gid_attrs/types/" + index,
              gid.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2\n" : "IB/RoCE v1\n");
    tree.file(port + "gid_attrs/ndevs/" + index, netdev + "\n");
  }
  std::map<std::string, std::uint64_t> sums;  // over the contexts
  for (const device::Counter& counter : facts.counters) {
    const char* folder =
        counter.group == device::Counter::Group::kPort ? "counters/" : "hw_counters/";
    sums[folder + std::string(counter.name)] += counter.value;
  }
  for (const auto& [name, sum] : sums) {
    tree.file(port + name, print("%llu\n", static_cast<unsigned long long>(sum)));
  }
}

// The path of the network interface's own device; empty for a virtual interface, which has none.
std::string device_behind(const std::string& netdev) {
  char resolved[PATH_MAX];
  const std::string link = "/sys/class/net/" + netdev + "/device";
  return FERRY_NEXT(realpath)(link.c_str(), resolved) ? resolved : "";
}

void add_device(Tree& tree, const Device& device, device::Rnic& rnic) {
  const std::string name = device.device.name;
  const std::string root = std::string(kDevices) + "/" + name + "/";
  const std::string guid = guid_text(rnic.guid());
  tree.file(root + "board_id", "ferry\n");
  tree.file(root + "fw_ver", FERRY_RELEASE "\n");
  tree.file(root + "hca_type", "ferry\n");
  tree.file(root + "hw_rev", "1\n");
  tree.file(root + "node_desc", "ferry\n");
  tree.file(root + "node_guid", guid);
  tree.file(root + "node_type", "1: CA\n");
  tree.file(root + "parent", rnic.netdev() + "\n");
  tree.file(root + "sys_image_guid", guid);
  const Facts facts = facts_of(device, rnic);
  add_port(tree, root + "ports/1/", facts, rnic.netdev());
  if (std::string behind = device_behind(rnic.netdev()); !behind.empty()) {
    tree.files[root + "device"] = {PathKind::kLink, std::move(behind), {}, false, 0};
  }

  const unsigned minor = kVerbsMinorBase + device.number;
  const std::string verbs = std::string(kVerbs) + "/" + device.device.dev_name + "/";
  tree.file(verbs + "abi_version", "1\n");
  tree.file(verbs + "dev", print("%u:%u\n", kVerbsMajor, minor));
  tree.file(verbs + "ibdev", name + "\n");
  tree.node(std::string(kNodes) + "/" + device.device.dev_name, makedev(kVerbsMajor, minor));
}

// All files of ours as they are now; none when we have no device.
Tree tree_now() {
  Tree tree;
  visit_own_devices(
      [&](const Device& device, device::Rnic& rnic) { add_device(tree, device, rnic); });
  if (tree.files.empty()) return tree;
  tree.file(std::string(kVerbs) + "/abi_version", "6\n");
  tree.file(std::string(kCm) + "/abi_version", "4\n");
  tree.file(std::string(kCm) + "/dev", print("%u:%u\n", kMiscMajor, kCmMinor));
  tree.node(std::string(kNodes) + "/rdma_cm", rdma_cm_number());
  return tree;
}

bool is_below(std::string_view path, std::string_view root) {
  return path.size() > root.size() && path.starts_with(root) && path[root.size()] == '/';
}

// The directory's entries; none: there is no such directory.
std::vector<VirtualEntry> entries_of(const Tree& tree, const std::string& directory) {
  std::vector<VirtualEntry> entries;
  const std::string prefix = directory + "/";
  for (auto at = tree.files.lower_bound(prefix);
       at != tree.files.end() && at->first.starts_with(prefix); ++at) {
    const std::string_view rest = std::string_view(at->first).substr(prefix.size());
    const std::string_view name = rest.substr(0, rest.find('/'));
    if (!entries.empty() && entries.back().name == name) continue;
    entries.push_back(
        {std::string(name), name.size() < rest.size() ? PathKind::kDirectory : at->second.kind});
  }
  return entries;
}

// Whether `path` is below a directory that is ours alone: there a file that we do not have does not
// exist.
bool below_ours(const Tree& tree, const std::string& path) {
  for (std::string_view root : {kDevices, kVerbs}) {
    if (!is_below(path, root)) continue;
    const std::size_t end = path.find('/', root.size() + 1);
    return end != std::string::npos && !entries_of(tree, path.substr(0, end)).empty();
  }
  return !tree.files.empty() && is_below(path, kCm);
}

}  // namespace

bool is_rdma_cm(std::string_view path) {
  return normal_path(path) == std::string(kNodes) + "/rdma_cm";
}

dev_t rdma_cm_number() {
  return makedev(kMiscMajor, kCmMinor);
}

std::string normal_path(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    path.remove_prefix(std::min(path.find_first_not_of('/'), path.size()));
    const std::string_view name = path.substr(0, path.find('/'));
    path.remove_prefix(name.size());
    if (name == "..") {
      out.erase(std::min(out.rfind('/'), out.size()));
    } else if (!name.empty() && name != ".") {
      out += '/';
      out += name;
    }
  }
  return out;
}

SystemFilesOnly::SystemFilesOnly() {
  ++system_files_only;
}
SystemFilesOnly::~SystemFilesOnly() {
  --system_files_only;
}

bool may_be_virtual(const char* path) {
  if (!path || path[0] != '/' || (path[1] != 's' && path[1] != 'd')) return false;
  for (std::string_view root : kRoots) {
    if (!strncmp(path, root.data(), root.size())) return system_files_only == 0;
  }
  return false;
}

VirtualFile look_up(std::string_view asked, bool follow) {
  const std::string path = normal_path(asked);
  const bool under_root = std::any_of(kRoots.begin(), kRoots.end(), [&](std::string_view root) {
    return path == root || is_below(path, root);
  });
  if (!under_root) {
    // ".." may lead out of a directory of ours, which the system may not have: the system gets the path without "..".
    if (asked.find("/..") == std::string_view::npos) return {};
    return {PathKind::kReal, path.empty() ? "/" : path, {}, false, 0};
  }
  const Tree tree = tree_now();
  if (const auto at = tree.files.find(path); at != tree.files.end()) {
    VirtualFile found = at->second;
    if (found.kind == PathKind::kLink && (follow || asked.ends_with('/'))) {
      found.kind = PathKind::kReal;
    }
    return found;
  }
  VirtualFile found;
  found.entries = entries_of(tree, path);
  if (!found.entries.empty()) {
    found.kind = PathKind::kDirectory;
    found.shared = std::find(kRoots.begin(), kRoots.end(), path) != kRoots.end();
    return found;
  }
  for (const auto& [link, file] : tree.files) {
    if (file.kind == PathKind::kLink && is_below(path, link)) {
      return {PathKind::kReal, file.text + path.substr(link.size()), {}, false, 0};
    }
  }
  if (below_ours(tree, path)) found.kind = PathKind::kMissing;
  return found;
}

}  // namespace ferry::verbs
