#include "cli/cdi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <link.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "agent/protocol.h"
#include "base/companion.h"
#include "base/failure.h"
#include "base/unique_fd.h"
#include "cli/files.h"
#include "host/control/control_server.h"
#include "host/proc/kernel_devices.h"
#include "oci/elf.h"
#include "oci/layout.h"

namespace ferry::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr char kCdiVersion[] = "0.5.0";  // Debian 12's podman knows no later one
constexpr char kKind[] = "ferry.dev/rnic";
constexpr char kHookName[] = "ferry-oci-hook";
constexpr std::array<const char*, 2> kStages{"createContainer", "startContainer"};

void make_folder(const fs::path& path) {
  std::error_code error;
  if (fs::create_directories(path, error)) ::chmod(path.c_str(), 0755);
  if (!error) return;
  errno = error.value();
  throw cannot("cannot make " + path.string());
}

// The file that the dynamic linker of this host takes for a name; empty: there is none.
std::string host_library(const std::string& soname) {
  const std::unique_ptr<void, int (*)(void*)> library(::dlopen(soname.c_str(), RTLD_LAZY),
                                                      ::dlclose);
  link_map* map = nullptr;
  if (!library || ::dlinfo(library.get(), RTLD_DI_LINKMAP, &map) != 0) return {};
  return map->l_name;
}

// The paths of this host's libibverbs and of the libraries that it needs beside glibc, by name.
std::map<std::string, std::string> host_verbs() {
  std::map<std::string, std::string> found;
  std::vector<std::string> wanted{std::string(oci::kVerbs)};
  while (!wanted.empty()) {
    const std::string name = wanted.back();
    wanted.pop_back();
    if (oci::is_of_glibc(name) || found.contains(name)) continue;
    const std::string path = host_library(name);
    // Without libibverbs this host serves images that have their own.
    if (path.empty() && name == oci::kVerbs) return {};
    if (path.empty()) throw Failure(fmt::format("{} is missing on this host", name));
    found[name] = path;
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    try {
      for (const auto& each : oci::read_elf(file.get()).needed) wanted.push_back(each);
    } catch (const oci::ElfError& error) {
      throw Failure(fmt::format("cannot use {}: {}", path, error.what()));
    }
  }
  return found;
}

struct File {
  std::string content;
  mode_t mode;
};

// The files that containers mount, by their names in the folder.
std::map<std::string, File> files() {
  std::map<std::string, File> all;
  all["ferry/libferry.so"] = {read_file(need_companion("libferry.so")), 0644};
  all[fmt::format("ferry/{}", kHookName)] = {read_file(need_companion(kHookName)), 0755};
  std::string preload = fmt::format("{}\n", oci::kLibrary);
  const std::string placeholder = read_file(need_companion("ferry-placeholder.so"));
  for (const auto& [name, path] : host_verbs()) {
    all["host/" + name] = {read_file(path), 0644};
    all["ferry/host/" + name] = {placeholder, 0644};
    preload += fmt::format("{}/{}\n", oci::kHostFolder, name);
  }
  all["ld.so.preload"] = {preload, 0644};
  return all;
}

std::string digest(const std::map<std::string, File>& all) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> sum(::EVP_MD_CTX_new(),
                                                               ::EVP_MD_CTX_free);
  ::EVP_DigestInit_ex(sum.get(), ::EVP_sha256(), nullptr);
  for (const auto& [name, file] : all) {
    const std::string head = fmt::format("{} {} ", name, file.content.size());
    ::EVP_DigestUpdate(sum.get(), head.data(), head.size());
    ::EVP_DigestUpdate(sum.get(), file.content.data(), file.content.size());
  }
  std::array<unsigned char, 32> bytes{};
  ::EVP_DigestFinal_ex(sum.get(), bytes.data(), nullptr);
  std::string digits;
  for (std::size_t i = 0; i < 8; ++i) digits += fmt::format("{:02x}", bytes[i]);
  return digits;
}

// Makes LIBRARIES/DIGEST, with the files in it. A container keeps the files with which it was made:
// a program in it has them mapped, on the host to which it moves as well.
std::string put_libraries(const std::string& libraries) {
  const auto all = files();
  const fs::path folder = fs::absolute(libraries) / digest(all);
  if (fs::exists(folder)) return folder;
  make_folder(libraries);
  const fs::path beside = folder.string() + fmt::format(".new.{}", ::getpid());
  try {
    for (const auto& part :
         {fs::path(), fs::path("ferry"), fs::path("ferry/host"), fs::path("host")}) {
      make_folder(beside / part);
    }
    for (const auto& [name, file] : all) write_file(beside / name, file.content, file.mode);
    std::error_code error;
    fs::rename(beside, folder, error);
    if (error && !fs::exists(folder)) {
      throw Failure(fmt::format("cannot make {}: {}", folder.string(), error.message()));
    }
  } catch (const Failure&) {
    std::error_code ignored;
    fs::remove_all(beside, ignored);
    throw;
  }
  std::error_code ignored;
  fs::remove_all(beside, ignored);  // another process has been faster
  return folder;
}

// The folder in which ferryd's socket for containers is, whenever there is a ferryd.
std::string socket_folder() {
  const char* socket = std::getenv(agent::kSocketVariable);
  const std::string folder = host::ControlServer::programs_folder(
      socket != nullptr && *socket != '\0' ? socket : agent::kSocketPath);
  make_folder(folder);
  return folder;
}

struct Edits {
  struct Mount {
    std::string source, destination;
  };
  struct Hook {
    std::string stage, path;
  };
  std::vector<Mount> mounts;
  std::vector<Hook> hooks;
  // With a device of the kernel:
  std::string device;
  host::DeviceNode node;
};

Edits edits(const std::string& libraries) {
  const std::string folder = put_libraries(libraries);
  return {{{folder + "/ferry", std::string(oci::kFolder)},
           {folder + "/host", std::string(oci::kHostFolder)},
           {folder + "/ld.so.preload", std::string(oci::kPreload)},
           {socket_folder(), std::string(oci::kSocketFolder)}},
          {{kStages[0], fmt::format("{}/ferry/{}", folder, kHookName)},
           {kStages[1], std::string(oci::kHook)}},
          {},
          {}};
}

// The kernel's RDMA devices that programs can open, with their nodes.
std::map<std::string, host::DeviceNode> devices_of_kernel() {
  std::map<std::string, host::DeviceNode> found;
  for (const auto& device : host::kernel_devices()) {
    if (const auto node = host::node_of(device.name)) found.emplace(device.name, *node);
  }
  return found;
}

std::string path_of(const host::DeviceNode& node) {
  return "/dev/infiniband/" + node.name;
}

// Which devices programs in the container get (docs/settings.md).
const std::string kDeviceVariable = "FERRY_DEVICE=";

ordered_json mount_options() {
  return {"bind", "ro", "nosuid", "nodev"};
}

ordered_json hook_arguments(const std::string& stage) {
  return {kHookName, stage};
}

ordered_json container_edits(const Edits& edits) {
  ordered_json mounts = ordered_json::array(), hooks = ordered_json::array();
  for (const auto& mount : edits.mounts) {
    mounts.push_back({{"hostPath", mount.source},
                      {"containerPath", mount.destination},
                      {"options", mount_options()}});
  }
  for (const auto& hook : edits.hooks) {
    hooks.push_back(
        {{"hookName", hook.stage}, {"path", hook.path}, {"args", hook_arguments(hook.stage)}});
  }
  ordered_json all = {{"mounts", mounts}, {"hooks", hooks}};
  if (!edits.device.empty()) {
    all["env"] = {kDeviceVariable + edits.device};
    all["deviceNodes"] = ordered_json::array({{{"path", path_of(edits.node)}}});
  }
  return all;
}

ordered_json specification(Edits edits) {
  ordered_json devices =
      ordered_json::array({{{"name", "all"}, {"containerEdits", container_edits(edits)}}});
  for (const auto& [name, node] : devices_of_kernel()) {
    edits.device = name;
    edits.node = node;
    devices.push_back({{"name", name}, {"containerEdits", container_edits(edits)}});
  }
  return {{"cdiVersion", kCdiVersion}, {"kind", kKind}, {"devices", devices}};
}

// Lets the programs of a bundle use edits.device, and no other device.
void merge_device(ordered_json& config, const Edits& edits) {
  ordered_json env = ordered_json::array(), nodes = ordered_json::array(),
               allowed = ordered_json::array();
  for (const auto& variable : config.at("process").value("env", ordered_json::array())) {
    if (!variable.get<std::string>().starts_with(kDeviceVariable)) env.push_back(variable);
  }
  env.push_back(kDeviceVariable + edits.device);
  ordered_json& system = config["linux"];
  for (const auto& node : system.value("devices", ordered_json::array())) {
    if (node.value("path", "") != path_of(edits.node)) nodes.push_back(node);
  }
  ordered_json number = {{"type", "c"}, {"major", edits.node.major}, {"minor", edits.node.minor}};
  ordered_json node = number, rule = {{"allow", true}};
  node.update({{"path", path_of(edits.node)}, {"fileMode", 0666}, {"uid", 0}, {"gid", 0}});
  nodes.push_back(node);
  rule.update(number);
  rule["access"] = "rw";
  for (const auto& other :
       system.value("resources", ordered_json::object()).value("devices", ordered_json::array())) {
    if (other != rule) allowed.push_back(other);
  }
  allowed.push_back(rule);
  config["process"]["env"] = env;
  system["devices"] = nodes;
  system["resources"]["devices"] = allowed;
}

// Takes away what is Ferry's, also an older version's, and adds what is in `edits`.
void merge(ordered_json& config, const Edits& edits) {
  ordered_json mounts = ordered_json::array();
  for (const auto& mount : config.value("mounts", ordered_json::array())) {
    const std::string destination = mount.value("destination", "");
    const bool ours = std::any_of(edits.mounts.begin(), edits.mounts.end(),
                                  [&](const auto& m) { return m.destination == destination; });
    if (!ours) mounts.push_back(mount);
  }
  for (const auto& mount : edits.mounts) {
    mounts.push_back({{"destination", mount.destination},
                      {"type", "bind"},
                      {"source", mount.source},
                      {"options", mount_options()}});
  }
  config["mounts"] = mounts;
  for (const auto& hook : edits.hooks) {
    ordered_json hooks = ordered_json::array();
    for (const auto& other :
         config.value("hooks", ordered_json::object()).value(hook.stage, ordered_json::array())) {
      if (fs::path(other.value("path", "")).filename() != kHookName) hooks.push_back(other);
    }
    hooks.push_back({{"path", hook.path}, {"args", hook_arguments(hook.stage)}});
    config["hooks"][hook.stage] = hooks;
  }
  if (!edits.device.empty()) merge_device(config, edits);
}

// Adds the kernel's device `device`, which may be empty. Throws Failure.
Edits with_device(Edits edits, const std::string& device) {
  if (device.empty()) return edits;
  const auto node = host::node_of(device);
  if (!node) {
    std::string names;
    for (const auto& [name, of_it] : devices_of_kernel()) names += " " + name;
    throw Failure(fmt::format("this host's kernel has no RDMA device {}; it has{}", device,
                              names.empty() ? " none" : names));
  }
  edits.device = device;
  edits.node = *node;
  return edits;
}

}  // namespace

int cdi_generate(const std::string& libraries, const std::string& output, bool as_json) {
  const std::string text = specification(edits(libraries)).dump(2) + "\n";
  if (as_json) {
    std::cout << text;
    return 0;
  }
  make_folder(fs::absolute(output).parent_path());
  write_file(output, text, 0644);
  std::cout << fmt::format("wrote {}; next: podman run --device {}=all IMAGE\n", output, kKind);
  for (const auto& [name, node] : devices_of_kernel())
    std::cout << fmt::format("or with the kernel's {}: podman run --device {}={} IMAGE\n", name,
                             kKind, name);
  return 0;
}

int cdi_apply(const std::string& libraries, const std::string& bundle, const std::string& device) {
  const std::string path = bundle + "/config.json";
  ordered_json config = ordered_json::parse(read_file(path), nullptr, false);
  if (!config.is_object()) throw Failure(fmt::format("{} is no JSON object", path));
  try {
    merge(config, with_device(edits(libraries), device));
  } catch (const ordered_json::exception& error) {
    throw Failure(fmt::format("{} is no configuration of a container: {}", path, error.what()));
  }
  struct stat status {};
  const mode_t mode = ::stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0644;
  write_file(path, config.dump(2) + "\n", mode);
  return 0;
}

}  // namespace ferry::cli
