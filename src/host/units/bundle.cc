#include "host/units/bundle.h"

#include <fmt/core.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/failure.h"
#include "base/json_text.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A string in an object; empty when it is missing or something else.
std::string text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

json list_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : json::array();
}

json object_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_object() ? *found : json::object();
}

// Throws Failure unless there is room for a root filesystem, and nothing that it would be mixed
// with.
void check_room(const std::string& root, std::uint64_t bytes) {
  constexpr std::uint64_t kBeside = 16 << 20;  // folders, and what is written meanwhile
  std::error_code error;
  const auto status = fs::symlink_status(root, error);
  if (fs::exists(status) && !(fs::is_directory(status) && fs::is_empty(root, error))) {
    throw Failure(
        fmt::format("there are files in {} already; remove them, or move without "
                    "--copy-rootfs",
                    root));
  }
  fs::path there = root;
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  struct statvfs room {};
  if (::statvfs(there.c_str(), &room) != 0) {
    throw Failure(fmt::format("cannot look at {}: {}", there.string(), error_text(errno)));
  }
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  if (free >= bytes && free - bytes >= kBeside) return;
  throw Failure(
      fmt::format("not enough room for the root filesystem in {}: {} MiB needed, {} MiB "
                  "free",
                  root, (bytes + kBeside) >> 20, free >> 20));
}

}  // namespace

bool is_bind(const json& mount) {
  if (text_of(mount, "type") == "bind") return true;
  const json options = list_of(mount, "options");
  return std::any_of(options.begin(), options.end(),
                     [](const json& option) { return option == "bind" || option == "rbind"; });
}

json read_config(const std::string& bundle) {
  std::ifstream in(bundle + "/config.json");
  json config = json_or_discarded(in);
  if (!config.is_object()) throw Failure(fmt::format("cannot read {}/config.json", bundle));
  return config;
}

std::string network_namespace(const json& config) {
  for (const auto& space : list_of(object_of(config, "linux"), "namespaces")) {
    if (text_of(space, "type") != "network") continue;
    const std::string path = text_of(space, "path");
    if (path.empty()) {
      throw Failure(
          "its network namespace has no path in config.json, so that nobody can make it anew; give "
          "it one (ip netns add)");
    }
    return path;
  }
  return {};
}

void check_config(const json& config) {
  if (object_of(config, "process").value("terminal", false)) {
    throw Failure("it has a terminal, which cannot move");
  }
  for (const auto& space : list_of(object_of(config, "linux"), "namespaces")) {
    const std::string type = text_of(space, "type"), path = text_of(space, "path");
    if (type != "network" && !path.empty()) {
      throw Failure(fmt::format("it shares the {} namespace {}", printable(type), printable(path)));
    }
  }
}

std::string root_folder(const std::string& bundle, const json& config) {
  return fs::path(bundle) / text_of(object_of(config, "root"), "path");
}

void check_bundle(const std::string& bundle, const json& config,
                  std::optional<std::uint64_t> copied) {
  const fs::path folder = bundle;
  if (is_there(folder / "config.json") &&
      network_namespace(read_config(bundle)) != network_namespace(config)) {
    throw Failure(fmt::format("the config.json in {} names another network namespace", bundle));
  }
  const std::string root = root_folder(bundle, config);
  std::error_code error;
  if (copied) {
    check_room(root, *copied);
  } else if (!fs::is_directory(root, error) || fs::is_empty(root, error)) {
    throw Failure(
        fmt::format("there is no root filesystem in {}; have it copied: --copy-rootfs", root));
  }
  for (const auto& mount : list_of(config, "mounts")) {
    if (is_bind(mount) && !is_there(folder / text_of(mount, "source"))) {
      throw Failure(fmt::format("there is no {}, which is mounted at {}",
                                printable(text_of(mount, "source")),
                                printable(text_of(mount, "destination"))));
    }
  }
  const json stages = object_of(config, "hooks");  // items() refers to it
  for (const auto& [stage, hooks] : stages.items()) {
    if (!hooks.is_array()) continue;
    for (const auto& hook : hooks) {
      // Hooks of startContainer are looked for inside the container, and not run again.
      if (stage != "startContainer" && !is_there(text_of(hook, "path"))) {
        throw Failure(fmt::format("there is no {}, a {} hook", printable(text_of(hook, "path")),
                                  printable(stage)));
      }
    }
  }
}

}  // namespace ferry::host
