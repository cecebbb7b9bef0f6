#include "host/units/lab/lab.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/failure.h"
#include "base/json_text.h"
#include "host/proc/subprocess.h"

namespace ferry::host {
namespace {

constexpr std::chrono::seconds kHookLimit{10};  // a program may stand still meanwhile

using nlohmann::json;

}  // namespace

LabRuntime::LabRuntime(std::string directory, std::string hook)
    : Runtime(std::move(directory)), hook_(std::move(hook)) {}

Container LabRuntime::describe(const std::string& host, const std::string& name) {
  auto container = find(name);
  if (!container) {
    throw Failure(fmt::format("there is no container '{}' on {}", printable(name), host));
  }
  if (container->state == "moved") {
    throw Failure(has_moved(name, host, container->moved_to));
  }
  if (container->state == "exited") {
    throw Failure(fmt::format("'{}' does not run on {}: it has ended", name, host));
  }
  if (container->state != "running" || container->pid <= 0) {
    throw Failure(is_moving(name));
  }
  return std::move(*container);
}

void LabRuntime::check_arrival(const std::string& host, const std::string& name,
                               const std::string&) {
  if (hook_.empty()) {
    throw Failure(
        fmt::format("the ferryd of {} has no --network-hook, which containers need", host));
  }
  if (!name_is_free(name)) {
    throw Failure(fmt::format("{} has a container '{}' of its own", host, name));
  }
}

Container LabRuntime::receive(const std::string& name, const std::string& source_json) {
  if (!is_container_name(name)) {
    throw Failure(fmt::format("'{}' is no name for a container", name));
  }
  const Outcome outcome = run({{hook_, "prepare", name}, {}, source_json});
  if (!outcome.ok()) {
    throw Failure(
        fmt::format("cannot prepare the network of '{}': {}", name, one_line(outcome.err)));
  }
  json record = json_or_discarded(outcome.out);
  if (record.is_object()) record["restored"] = true;
  const std::string made = record.is_object() ? json_text(record, 2) + "\n" : outcome.out;
  try {
    return write_record(name, made);
  } catch (const Failure&) {
    switch_network("release", parse_container(made).instance);
    throw;
  }
}

void LabRuntime::switch_network(const std::string& command, const std::string& instance) {
  const Outcome outcome = run({{hook_, command, instance}, {}, {}}, kHookLimit);
  if (!outcome.ok()) {
    throw Failure(
        fmt::format("cannot {} the network of '{}': {}", command, instance, one_line(outcome.err)));
  }
}

}  // namespace ferry::host
