#include "host/detach/detached_program.h"

#include <fmt/core.h>
#include <unistd.h>

#include <utility>

#include "base/clock.h"
#include "base/failure.h"
#include "device/own_names.h"
#include "ferry.pb.h"
#include "host/journal/decision_log.h"
#include "host/move/destination/device_choice.h"
#include "host/peers/this_host.h"
#include "host/proc/kernel_devices.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kLook{50};

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

bool DetachedProgram::is_away() const {
  std::lock_guard lock(mutex_);
  return is_away_;
}

void DetachedProgram::look() {
  partners_.look(name(), root(), program_.processes, program_.unit->rdma_moves());
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
  {
    std::lock_guard lock(mutex_);
    is_away_ = true;
  }
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

std::string DetachedProgram::obstacle() const {
  if (tree_.all_gone()) return {};
  for (const auto& [name_of_device, needs] : partners_.devices()) {
    if (device::is_own_name(name_of_device)) continue;
    v1::KernelDevice device;
    device.set_name(name_of_device);
    device.set_wanted(name_of_device);
    device.set_needs(needs);
    if (const auto node = nodes_.find(name_of_device); node != nodes_.end()) {
      device.set_node(node->second);
    }
    try {
      choose_device(device);
    } catch (const Failure& failure) {
      return fmt::format("'{}' waits for {}: {}", name(), name_of_device, failure.what());
    }
  }
  return {};
}

void DetachedProgram::go_on(std::chrono::milliseconds limit) {
  tree_.roll_back();
  const auto until = Clock::now() + limit;
  std::unique_lock lock(mutex_);
  // A process that ends tells nobody.
  while (is_away_ && !tree_.all_gone() && Clock::now() < until && !side_.host.stopping) {
    changed_.wait_for(lock, kLook);
  }
  if (tree_.all_gone()) is_away_ = false;
}

std::optional<double> DetachedProgram::stood_still_ms() const {
  std::lock_guard lock(mutex_);
  if (is_away_ || !back_ || tree_.timing().began == Clock::time_point()) return std::nullopt;
  return milliseconds_between(tree_.timing().began, *back_);
}

void DetachedProgram::resumed(pid_t inner_pid, const agent::Resumed&) {
  std::lock_guard lock(mutex_);
  back_ = Clock::now();  // before go_on() can see that all are back
  tree_.resumed(inner_pid);
  changed_.notify_all();
}

void DetachedProgram::need_restorable() const {
  throw Failure(fmt::format("'{}' has left its RDMA devices for a while (ferry detach)", name()));
}

}  // namespace ferry::host
