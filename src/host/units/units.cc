#include "host/units/units.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <ranges>

#include "base/failure.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

std::optional<pid_t> pid_in(const std::string& text) {
  pid_t pid = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, pid);
  if (error != std::errc() || rest != end) return std::nullopt;
  return pid;
}

}  // namespace

Units::Found Units::found(const ControlServer& control, std::shared_ptr<Unit> unit) const {
  Found found{std::move(unit), {}};
  found.processes = ferry_processes(control, found.unit->root());
  // The record of whoever runs it may tell its end later.
  if (found.processes.empty() && !is_alive(found.unit->root())) {
    throw Failure(fmt::format("{} has ended", in_words(*found.unit)));
  }
  return found;
}

Units::Found Units::of_process(const ControlServer& control, pid_t pid) const {
  for (auto* kind : kinds_) {
    if (auto unit = kind->of_process(host_, pid)) return found(control, std::move(unit));
  }
  throw Failure(fmt::format("there is no process {} on {}", pid, host_));
}

UnitKind* Units::kind_with(const ControlServer& control, const std::string& name) const {
  UnitKind* only = nullptr;
  for (const auto& process : control.processes()) {
    const auto owner = name_of(process.pid);
    if (!owner || owner->name != name) continue;
    UnitKind& of_process = kind(owner->kind);
    if (only != nullptr && only != &of_process) {
      throw Failure(fmt::format(
          "'{}' is ambiguous on {}: {} and {} have a container of this name; give a pid: ferry ps",
          name, host_, only->kind(), of_process.kind()));
    }
    only = &of_process;
  }
  return only;
}

// Throws Failure when a program of this name has left this host. None of that name is here.
void Units::need_not_left(uid_t user, const std::string& program) const {
  const auto move = history_.departure(program, user);
  if (!move) return;
  if (move->outcome() == History::kUnderWay) throw Failure(is_moving(program));
  throw Failure(has_moved(program, host_, move->to()));
}

Units::Found Units::find(const ControlServer& control, uid_t user, const std::string& program,
                         const std::string& wanted) const {
  if (!wanted.empty()) {
    UnitKind& asked = kind(wanted);
    if (!asked.has(program) && asked.name_is_free(program)) need_not_left(user, program);
    return found(control, asked.named(host_, program));
  }
  if (auto* of_name = kind_with(control, program)) {
    return found(control, of_name->named(host_, program));
  }
  if (const auto pid = pid_in(program)) return of_process(control, *pid);
  std::map<pid_t, Found> units;  // by root
  std::string refusal;
  const auto look_at = [&](pid_t pid) {
    try {
      Found unit = of_process(control, pid);
      units.emplace(unit.unit->root(), std::move(unit));
    } catch (const Failure& failure) {
      if (is_alive(pid)) refusal = failure.what();  // else it has just ended
    }
  };
  for (const auto& process : control.processes()) {
    if (program_name(process.pid) != program.substr(0, 15)) continue;
    look_at(process.pid);
  }
  // What uses no RDMA is meant when nothing of this name does: containers, whether they run or not, and programs, if
  // none of this name has left. podman, which is asked last, takes long to answer.
  if (units.empty() && refusal.empty()) {
    for (auto* kind : kinds_ | std::views::reverse) {
      if (kind->has(program)) return found(control, kind->named(host_, program));
    }
    need_not_left(user, program);
    const auto others = processes_named(program);
    for (const pid_t pid : others) {
      const auto is_parent = [&](pid_t other) { return other != pid && is_below(pid, other); };
      if (std::none_of(others.begin(), others.end(), is_parent)) look_at(pid);
    }
  }
  if (units.size() == 1) return std::move(units.begin()->second);
  if (units.size() > 1) {
    std::string candidates;
    for (const auto& [root, unit] : units) {
      if (!candidates.empty()) candidates += ", ";
      const auto name = name_of(root);
      candidates += name ? name->name : std::to_string(root);
    }
    throw Failure(
        fmt::format("'{}' is ambiguous on {}; give one of: {}", program, host_, candidates));
  }
  if (!refusal.empty()) throw Failure(refusal);
  throw Failure(
      fmt::format("there is no program '{}' on {}; see: ferry ps, and podman ps", program, host_));
}

std::string Units::in_words(const Unit& unit) const {
  const pid_t root = unit.root();
  if (root == 0 || name_of(root)) return fmt::format("'{}'", unit.name());
  return fmt::format("'{}' (process {})", unit.name(), root);
}

std::optional<UnitName> Units::name_of(pid_t pid) const {
  for (auto* kind : kinds_) {
    if (auto name = kind->name_of(pid)) return name;
  }
  return std::nullopt;
}

UnitKind& Units::kind(const std::string& name) const {
  for (auto* kind : kinds_) {
    if (kind->kind() == name) return *kind;
  }
  throw Failure(fmt::format("the ferryd of {} moves no containers of {}", host_, printable(name)));
}

std::shared_ptr<Unit> Units::known(const std::string& name, const std::string& instance) const {
  for (auto* kind : kinds_) {
    if (!kind->has_made(instance)) continue;
    if (auto unit = kind->known(name, instance)) return unit;
  }
  return kinds_.back()->known(name, instance);
}

void Units::switch_network(const std::string& command, const std::string& instance) const {
  for (auto* kind : kinds_) {
    if (kind->has_made(instance)) return kind->switch_network(command, instance);
  }
}

void Units::clear_up_arrivals() const {
  for (auto* kind : kinds_) kind->clear_up_arrivals();
}

void Units::join_network_again(pid_t root) const {
  for (auto* kind : kinds_) kind->join_network_again(root);
}

}  // namespace ferry::host
