#include "host/detach/detachments.h"

#include <fmt/format.h>

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
constexpr milliseconds kBetweenLooks{20};  // at devices that are not there: programs stand still

bool is_on(const agent::ContextStatus& context, const std::set<std::string>& devices) {
  return devices.contains(device::device_behind(context.place));
}

// The kernel lets nobody take away a device that a process has open. Throws Failure.
void need_no_other(const std::set<std::string>& devices, const std::set<pid_t>& leaving) {
  for (const pid_t pid : all_processes()) {
    if (leaving.contains(pid)) continue;
    const auto opened = opened_kernel_devices(pid);
    const auto device = std::find_if(opened.begin(), opened.end(),
                                     [&](const auto& each) { return devices.contains(each); });
    if (device == opened.end()) continue;
    throw Failure(fmt::format(
        "process {} ({}) has {} open, and not by Ferry; end it, or start it with ferry run", pid,
        program_name(pid).value_or("?"), *device));
  }
}

bool are_related(pid_t one, pid_t other) {
  return is_below(one, other) || is_below(other, one);
}

// They have a device or a program in common.
bool concerns(const Detachment& detachment, const std::set<std::string>& devices,
              const std::vector<Detachments::User>& users) {
  const auto& away = detachment.programs();
  return std::any_of(devices.begin(), devices.end(),
                     [&](const auto& each) { return detachment.devices().contains(each); }) ||
         std::any_of(users.begin(), users.end(), [&](const auto& user) {
           return std::any_of(away.begin(), away.end(), [&](const auto& program) {
             return are_related(program->root(), user.program.unit->root());
           });
         });
}

}  // namespace

Detachment::Detachment(const SourceSide& side, std::set<std::string> devices,
                       std::vector<Units::Found> programs)
    : side_(side), devices_(std::move(devices)) {
  for (auto& program : programs) {
    programs_.push_back(std::make_unique<DetachedProgram>(side, std::move(program)));
  }
}

std::string Detachment::device_names() const {
  return fmt::format("{}", fmt::join(devices_, ", "));
}

void Detachment::leave() {
  // A peer may be one of the programs: none stops before the peers of all are suspended.
  try {
    in_parallel(programs_, [](const auto& program) { program->look(); });
    in_parallel(programs_, [](const auto& program) { program->suspend(); });
    in_parallel(programs_, [](const auto& program) { program->stop(); });
    need_no_other(devices_, {});
  } catch (const std::exception& failure) {
    const std::string why = failure.what();
    for (const auto& program : programs_) program->release_peers();
    enter({});
    throw Failure(fmt::format("the programs stay on {}: {}", device_names(), why));
  }
  for (const auto& program : programs_) program->release_peers();
}

// Each program enters when its devices are there, whatever the others wait for.
void Detachment::enter(const Tell& tell) const {
  std::set<std::string> told;
  const auto say = [&](const std::string& why) {
    if (why.empty() || !told.insert(why).second) return;
    log::info("{}", why);
    if (tell) tell(why);
  };
  const auto away = [this] {
    return std::find_if(programs_.begin(), programs_.end(),
                        [](const auto& program) { return program->is_away(); });
  };
  for (;; std::this_thread::sleep_for(kBetweenLooks)) {
    std::string why;
    for (const auto& program : programs_) {
      if (!program->is_away()) continue;
      const std::string obstacle = program->enter();
      say(obstacle);
      if (!obstacle.empty()) why = obstacle;
      say(program->lateness());
    }
    const auto first = away();
    if (first == programs_.end()) return;
    if (!side_.host.stopping) continue;
    if (why.empty()) why = fmt::format("'{}' has not come back yet", (*first)->name());
    throw Failure(fmt::format("this ferryd is ending, and {}", why));
  }
}

std::vector<Detachments::User> Detachments::users_of(const std::set<std::string>& devices) const {
  const auto known = kernel_devices();
  for (const auto& device : devices) need_kernel_device(known, device);
  std::map<pid_t, User> found;       // by the first process
  std::map<pid_t, std::size_t> qps;  // of each process
  std::set<pid_t> leaving;
  for (const auto& [pid, status] : side_.control.statuses(kStatusLimit)) {
    bool is_user = false;
    for (const auto& context : status.contexts) {
      if (!is_on(context, devices)) continue;
      is_user = true;
      qps[pid] += context.qps.size();
    }
    if (!is_user) continue;
    auto program = side_.units.of_process(side_.control, pid);
    for (const auto& process : program.processes) leaving.insert(process.pid);
    const pid_t root = program.unit->root();
    found.emplace(root, User{std::move(program), 0});
  }
  need_no_other(devices, leaving);
  std::vector<User> users;
  for (auto& [root, user] : found) {
    // A process that another one of them has started leaves with that one.
    const auto parents = ancestors(root);
    if (std::any_of(parents.begin(), parents.end(),
                    [&](pid_t parent) { return found.contains(parent); })) {
      continue;
    }
    for (const auto& process : user.program.processes) user.qps += qps[process.pid];
    users.push_back(std::move(user));
  }
  return users;
}

// Called with mutex_ held.
void Detachments::need_not_away(const std::set<std::string>& devices,
                                const std::vector<User>& users) const {
  for (const auto& other : living()) {
    if (!concerns(*other, devices, users)) continue;
    throw Failure(fmt::format("programs are leaving {} just now; wait until they are back",
                              other->device_names()));
  }
}

void Detachments::need_not_moving(const std::vector<User>& users) const {
  for (const auto& user : users) {
    for (const auto& move : departures_.moves()) {
      if (move->is_over() || !are_related(move->unit().root(), user.program.unit->root())) continue;
      throw Failure(fmt::format("'{}' is being moved to {}; wait until that has ended",
                                user.program.unit->name(), move->group().peer().name()));
    }
  }
}

std::shared_ptr<Detachment> Detachments::begin(uid_t user, const std::set<std::string>& devices) {
  if (user != 0) throw Failure("only root may have programs leave a device: they are of all users");
  const auto users = users_of(devices);
  std::vector<Units::Found> programs;
  for (const auto& each : users) programs.push_back(each.program);
  auto detachment = std::make_shared<Detachment>(side_, devices, std::move(programs));
  {
    std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const auto& each) { return each.expired(); });
    need_not_away(devices, users);
    all_.push_back(detachment);  // a move that begins from now on is refused
  }
  need_not_moving(users);
  return detachment;
}

std::vector<Detachments::User> Detachments::look(const std::set<std::string>& devices) const {
  auto users = users_of(devices);
  {
    std::lock_guard lock(mutex_);
    need_not_away(devices, users);
  }
  need_not_moving(users);
  in_parallel(users, [&](const User& user) { DetachedProgram(side_, user.program).look(); });
  return users;
}

std::vector<std::shared_ptr<Detachment>> Detachments::living() const {
  std::vector<std::shared_ptr<Detachment>> living;
  for (const auto& each : all_) {
    if (auto detachment = each.lock()) living.push_back(std::move(detachment));
  }
  return living;
}

std::vector<std::shared_ptr<Detachment>> Detachments::all() const {
  std::lock_guard lock(mutex_);
  return living();
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
                      program->name(), detachment->device_names()));
    }
  }
}

}  // namespace ferry::host
