#include "host/detach/detachments.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/parallel.h"
#include "device/parcel.h"
#include "host/move/source/departures.h"
#include "host/peers/this_host.h"
#include "host/proc/kernel_devices.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStatusLimit{2000};
constexpr milliseconds kBetweenLooks{100};  // at a device that is not there

bool uses(const agent::StatusReply& status, const std::string& device) {
  return std::any_of(status.contexts.begin(), status.contexts.end(), [&](const auto& context) {
    return device::device_behind(context.place) == device;
  });
}

// The kernel lets nobody take away a device that a process has open. Throws Failure.
void need_no_other(const std::string& device, const std::set<pid_t>& leaving) {
  for (const pid_t pid : all_processes()) {
    if (leaving.contains(pid)) continue;
    const auto opened = opened_kernel_devices(pid);
    if (std::find(opened.begin(), opened.end(), device) == opened.end()) continue;
    throw Failure(fmt::format(
        "process {} ({}) has {} open, and not by Ferry; end it, or start it with ferry run", pid,
        program_name(pid).value_or("?"), device));
  }
}

bool are_related(pid_t one, pid_t other) {
  return is_below(one, other) || is_below(other, one);
}

bool shares_program(const Detachment& one, const Detachment& other) {
  for (const auto& mine : one.programs()) {
    for (const auto& theirs : other.programs()) {
      if (are_related(mine->root(), theirs->root())) return true;
    }
  }
  return false;
}

}  // namespace

Detachment::Detachment(const SourceSide& side, std::string device,
                       std::vector<Units::Found> programs)
    : side_(side), device_(std::move(device)) {
  for (auto& program : programs) {
    programs_.push_back(std::make_unique<DetachedProgram>(side, std::move(program)));
  }
}

void Detachment::leave() {
  // A peer may be one of the programs: none stops before the peers of all are suspended.
  try {
    in_parallel(programs_, [](const auto& program) { program->look(); });
    in_parallel(programs_, [](const auto& program) { program->suspend(); });
    in_parallel(programs_, [](const auto& program) { program->stop(); });
    need_no_other(device_, {});
  } catch (const std::exception& failure) {
    const std::string why = failure.what();
    for (const auto& program : programs_) program->release_peers();
    enter({});
    throw Failure(fmt::format("the programs stay on {}: {}", device_, why));
  }
  for (const auto& program : programs_) program->release_peers();
}

// Each program enters when its devices are there, whatever the others wait for.
void Detachment::enter(const Tell& tell) const {
  std::set<std::string> told;
  const auto say = [&](const std::string& why) {
    if (!told.insert(why).second) return;
    log::info("{}", why);
    if (tell) tell(why);
  };
  for (;; std::this_thread::sleep_for(kBetweenLooks)) {
    std::string why;
    for (const auto& program : programs_) {
      if (!program->is_away()) continue;
      std::string obstacle = program->obstacle();
      if (obstacle.empty()) {
        program->go_on(side_.host.limits.resume);
        if (!program->is_away()) continue;
        obstacle = fmt::format("'{}' has not come back to {} yet", program->name(), device_);
      }
      say(obstacle);
      why = obstacle;
    }
    if (why.empty()) return;
    if (side_.host.stopping) throw Failure(fmt::format("this ferryd is ending, and {}", why));
  }
}

std::vector<Units::Found> Detachments::programs_with(const std::string& device) const {
  std::map<pid_t, Units::Found> found;  // by the first process
  std::set<pid_t> leaving;
  for (const auto& [pid, status] : side_.control.statuses(kStatusLimit)) {
    if (!uses(status, device)) continue;
    auto program = side_.units.of_process(side_.control, pid);
    for (const auto& process : program.processes) leaving.insert(process.pid);
    found.emplace(program.unit->root(), std::move(program));
  }
  need_no_other(device, leaving);
  std::vector<Units::Found> programs;
  for (auto& [root, program] : found) {
    // A process that another one of them has started leaves with that one.
    const auto parents = ancestors(root);
    if (std::none_of(parents.begin(), parents.end(),
                     [&](pid_t parent) { return found.contains(parent); })) {
      programs.push_back(std::move(program));
    }
  }
  return programs;
}

std::shared_ptr<Detachment> Detachments::begin(uid_t user, const std::string& device) {
  if (user != 0) throw Failure("only root may have programs leave a device: they are of all users");
  need_kernel_device(kernel_devices(), device);
  auto detachment = std::make_shared<Detachment>(side_, device, programs_with(device));
  {
    std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const auto& each) { return each.expired(); });
    for (const auto& each : all_) {
      const auto other = each.lock();
      if (!other || (other->device() != device && !shares_program(*other, *detachment))) continue;
      throw Failure(fmt::format("programs are leaving {} just now; wait until they are back",
                                other->device()));
    }
    all_.push_back(detachment);  // a move that begins from now on is refused
  }
  for (const auto& program : detachment->programs()) {
    for (const auto& move : departures_.moves()) {
      if (move->is_over() || !are_related(move->unit().root(), program->root())) continue;
      throw Failure(fmt::format("'{}' is being moved to {}; wait until that has ended",
                                program->name(), move->group().peer().name()));
    }
  }
  return detachment;
}

std::vector<std::shared_ptr<Detachment>> Detachments::all() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Detachment>> living;
  for (const auto& each : all_) {
    if (auto detachment = each.lock()) living.push_back(std::move(detachment));
  }
  return living;
}

std::shared_ptr<UnderWay> Detachments::find(std::uint64_t id) const {
  for (const auto& detachment : all()) {
    for (const auto& program : detachment->programs()) {
      // It lives as long as the detachment.
      if (program->id() == id) return {detachment, program.get()};
    }
  }
  return nullptr;
}

void Detachments::registered(pid_t pid) const {
  for (const auto& detachment : all()) {
    for (const auto& program : detachment->programs()) {
      if (program->has_process(pid)) program->resumed(innermost_pid(pid).value_or(pid), {});
    }
  }
}

void Detachments::need_attached(pid_t root) const {
  for (const auto& detachment : all()) {
    for (const auto& program : detachment->programs()) {
      if (!are_related(program->root(), root)) continue;
      throw Failure(
          fmt::format("'{}' has left {} for a while (ferry detach); wait until it is back",
                      program->name(), detachment->device()));
    }
  }
}

}  // namespace ferry::host
