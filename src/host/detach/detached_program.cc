#include "host/detach/detached_program.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/failure.h"
#include "device/own_names.h"
#include "host/journal/decision_log.h"
#include "host/peers/this_host.h"
#include "host/proc/kernel_devices.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

// Then a device without an active port is entered all the same, and a program that is not back yet is late.
constexpr std::chrono::seconds kPatience{5};

}  // namespace

DetachedProgram::DetachedProgram(const SourceSide& side, Units::Found program)
    : side_(side),
      id_(new_move_id()),
      program_(std::move(program)),
      partners_(side.carrier, side.attestor, side.control, side.qp_names),
      tree_(side.control, side.stand_ins, id_) {}

DetachedProgram::~DetachedProgram() {
  // What is not back is left to the next ferryd.
  if (is_noted_ && tree_.all_gone()) side_.decisions.forget(id_, Side::kSource);
}

// A process that ends tells nobody.
bool DetachedProgram::is_away() const {
  return !tree_.all_gone();
}

void DetachedProgram::look() {
  partners_.look(name(), root(), program_.processes, program_.unit->rdma_moves());
  const auto here = kernel_devices();
  for (const auto& [device, needs] : partners_.devices()) {
    if (has_active_port(here, device)) active_.insert(device);
  }
  if (namespace_inode(root(), "mnt") == namespace_inode(::getpid(), "mnt")) return;
  for (const auto& [device, needs] : partners_.devices()) {
    if (const auto node = node_of(device)) nodes_[device] = to_string(*node);
  }
}

void DetachedProgram::suspend() {
  leaving_ = ferry_processes(side_.control, root());
  suspension_ = partners_.suspend(leaving_, id_, side_.host.limits.stop / 2);
}

void DetachedProgram::stop() {
  tree_.stop(leaving_, side_.residents, side_.host.limits.stop,
             [this](std::vector<HeldProcess>* held) {
               partners_.keep_own_names(held);
               note_held(*held);
             });
}

// Without an instance: a container goes on where it is, and its runtime is not to restore it.
void DetachedProgram::note_held(const std::vector<HeldProcess>& processes) {
  Held held{name(), {}, {}, {}, stamp_now().boot, root(), start_time(root()), processes};
  held.netns = program_.unit->netns();
  side_.decisions.note(Journal::held(id_, Side::kSource, held));
  is_noted_ = true;
}

// One line; empty: all of its devices are there.
std::string DetachedProgram::missing_device(const std::vector<KernelDevice>& here) const {
  for (const auto& [device, needs] : partners_.devices()) {
    if (device::is_own_name(device)) continue;
    try {
      need_kernel_device(here, device);
      if (const auto node = nodes_.find(device); node != nodes_.end())
        need_node(device, node->second);
    } catch (const Failure& failure) {
      return fmt::format("'{}' waits for {}: {}", name(), device, failure.what());
    }
  }
  return {};
}

// Whether a device has what the program needs is seen when the program makes that: nobody tries before, while it stands
// still.
std::string DetachedProgram::enter() {
  if (let_go_ || !is_away()) return {};
  const auto here = kernel_devices();
  if (auto obstacle = missing_device(here); !obstacle.empty()) {
    there_.reset();
    return obstacle;
  }
  if (!there_) there_ = Clock::now();
  const auto inactive = std::find_if(active_.begin(), active_.end(), [&](const auto& device) {
    return !has_active_port(here, device);
  });
  if (inactive != active_.end() && Clock::now() < *there_ + kPatience) {
    return fmt::format("'{}' waits for {}: its port is not active", name(), *inactive);
  }
  let_go_ = Clock::now();
  tree_.roll_back();
  return {};
}

std::string DetachedProgram::lateness() {
  if (is_late_told_ || !is_away() || !let_go_ || Clock::now() < *let_go_ + kPatience) return {};
  is_late_told_ = true;
  const auto obstacle = missing_device(kernel_devices());
  return obstacle.empty()
             ? fmt::format("'{}' has not come back yet: its devices do not have what it needs",
                           name())
             : obstacle;
}

std::optional<double> DetachedProgram::stood_still_ms() const {
  std::lock_guard lock(mutex_);
  if (!back_ || !tree_.all_gone() || tree_.timing().began == Clock::time_point())
    return std::nullopt;
  return milliseconds_between(tree_.timing().began, *back_);
}

std::optional<DetachedProgram::Entering> DetachedProgram::entering() const {
  std::lock_guard lock(mutex_);
  if (!back_ || !let_go_ || *back_ < *let_go_) return std::nullopt;
  return Entering(*let_go_, *back_);
}

void DetachedProgram::resumed(pid_t inner_pid, const agent::Resumed&) {
  std::lock_guard lock(mutex_);
  back_ = Clock::now();  // before is_away() can see that all are back
  tree_.resumed(inner_pid);
}

void DetachedProgram::need_restorable() const {
  throw Failure(fmt::format("'{}' has left its RDMA devices for a while (ferry detach)", name()));
}

}  // namespace ferry::host
