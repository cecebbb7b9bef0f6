#include "host/units/container/container.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/log.h"
#include "host/proc/process_tree.h"
#include "host/units/container/container_unit.h"

namespace ferry::host {
namespace {

using nlohmann::json;

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return in ? text.str() : std::string();
}

// Readers see the old file or the new one, never a part: it is written beside, then put in place.
void stage_file(const std::string& path, const std::string& text) {
  std::ofstream out(path + ".new", std::ios::trunc);
  out << text;
  out.close();
  if (out) return;
  const int error = errno;
  ::unlink((path + ".new").c_str());  // a part of it must never be put in place
  throw Failure(fmt::format("cannot write {}: {}", path, error_text(error)));
}

void publish_file(const std::string& path) {
  if (::rename((path + ".new").c_str(), path.c_str()) != 0) {
    throw Failure(fmt::format("cannot replace {}: {}", path, error_text(errno)));
  }
}

void replace_file(const std::string& path, const std::string& text) {
  stage_file(path, text);
  publish_file(path);
}

}  // namespace

bool is_container_name(const std::string& name) {
  return !name.empty() && name.find_first_of("/\n") == std::string::npos && name[0] != '.';
}

Container parse_container(const std::string& text) {
  const json record = json_or_discarded(text);
  if (!record.is_object()) throw Failure("a container's record is not JSON");
  Container container;
  container.json = text;
  try {
    container.name = record.at("name");
    container.state = record.value("state", "");
    container.netns = record.value("netns", "");
    container.instance = record.value("instance", "");
    container.log = record.value("log", "");
    container.moved_to = record.value("moved_to", "another host");
    container.pid = record.value("pid", 0);
    container.rdma_moves = record.value("rdma0_moves", false);
    container.restored = record.value("restored", false);
  } catch (const json::exception& error) {
    throw Failure(fmt::format("a container's record is malformed: {}", error.what()));
  }
  return container;
}

std::optional<Container> Runtime::recorded(const std::string& name) {
  if (!is_container_name(name)) return std::nullopt;
  const std::string folder = directory_ + "/" + name;
  const std::string text = read_file(folder + "/config.json");
  if (text.empty()) return std::nullopt;
  try {
    Container container = parse_container(text);
    container.folder = folder;
    container.runtime = this;
    return container;
  } catch (const Failure&) {
    return std::nullopt;
  }
}

std::vector<Container> Runtime::all() {
  std::vector<Container> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, ignored)) {
    if (auto container = find(entry.path().filename())) found.push_back(std::move(*container));
  }
  return found;
}

std::optional<Container> Runtime::container_of(pid_t pid) {
  auto chain = ancestors(pid);
  chain.push_back(pid);
  for (auto& container : all()) {
    if (container.state == "running" && std::count(chain.begin(), chain.end(), container.pid) > 0) {
      return container;
    }
  }
  return std::nullopt;
}

bool Runtime::name_is_free(const std::string& name) {
  const auto existing = find(name);
  return !existing || existing->state == "moved" || existing->state == "exited";
}

Container Runtime::write_record(const std::string& name, const std::string& json) {
  Container container = parse_container(json);
  container.runtime = this;
  container.folder = directory_ + "/" + name;
  std::error_code error;
  std::filesystem::create_directories(container.folder, error);
  std::filesystem::remove(container.folder + "/exit", error);
  replace_file(container.folder + "/config.json", container.json);
  return container;
}

Container Runtime::with(const Container& container, const Extras&) {
  throw Failure(fmt::format("'{}' {}", container.name, kOnlyRunc));
}

bool Runtime::is_current(const Container& container) {
  const auto now = recorded(container.name);
  return now && now->instance == container.instance;
}

void Runtime::set_state(const Container& container, const std::string& state, pid_t pid,
                        const std::string& to) {
  stage_state(container, state, pid, to);
  publish_state(container);
}

void Runtime::stage_state(const Container& container, const std::string& state, pid_t pid,
                          const std::string& to) {
  if (!is_current(container)) return;
  json record = json_or_discarded(read_file(container.folder + "/config.json"));
  if (!record.is_object()) return;
  record["state"] = state;
  record["pid"] = pid;
  record.erase("moved_to");
  if (!to.empty()) record["moved_to"] = to;
  stage_file(container.folder + "/config.json", json_text(record, 2) + "\n");
}

void Runtime::publish_state(const Container& container) {
  const std::string path = container.folder + "/config.json";
  if (is_current(container) && std::filesystem::exists(path + ".new")) publish_file(path);
}

bool Runtime::end(const Container& container, int status) {
  const auto now = recorded(container.name);
  if (!now || now->instance != container.instance || now->state != "running") return false;
  record_exit(container, status);
  switch_network("release", container.instance);
  return true;
}

void Runtime::record_exit(const Container& container, int status) {
  if (!is_current(container)) return;
  // The state first: whoever waits for `exit` reads the state as well.
  set_state(container, "exited", 0);
  replace_file(container.folder + "/exit", fmt::format("{}\n", status));
}

void Runtime::forget(const Container& container) {
  if (!is_current(container)) return;
  std::error_code ignored;
  std::filesystem::remove_all(container.folder, ignored);
}

std::shared_ptr<Unit> Runtime::named(const std::string& host, const std::string& name) {
  return std::make_shared<ContainerUnit>(*this, describe(host, name));
}

std::shared_ptr<Unit> Runtime::of_process(const std::string& host, pid_t pid) {
  const auto container = container_of(pid);
  return container ? named(host, container->name) : nullptr;
}

std::optional<UnitName> Runtime::name_of(pid_t pid) {
  const auto container = container_of(pid);
  if (!container) return std::nullopt;
  return UnitName{kind(), container->name, container->name};
}

std::shared_ptr<Unit> Runtime::arrive(const std::string& name, const std::string& details,
                                      const std::string&) {
  return std::make_shared<ContainerUnit>(*this, receive(name, details));
}

std::shared_ptr<Unit> Runtime::known(const std::string& name, const std::string& instance) {
  auto container = find(name);
  if (!container || container->instance != instance) return nullptr;
  return std::make_shared<ContainerUnit>(*this, std::move(*container));
}

// An arrival that has not been committed never will be.
void Runtime::clear_up_arrivals() {
  for (const auto& container : all()) {
    if (container.state != "restoring" || !container.restored) continue;
    log::info("'{}' was arriving when the former ferryd ended, and does not", container.name);
    report_failure([&] { switch_network("release", container.instance); });
    report_failure([&] { forget(container); });
  }
}

void Runtime::join_network_again(pid_t root) {
  for (const auto& container : all()) {
    if (container.pid != root || container.state != "running") continue;
    switch_network("activate", container.instance);
  }
}

}  // namespace ferry::host
