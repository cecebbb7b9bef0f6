#include "host/standin/stopped_tree.h"

#include <fmt/core.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "device/own_names.h"
#include "host/proc/kernel_devices.h"
#include "host/proc/network_namespace.h"
#include "host/proc/process_tree.h"
#include "host/standin/slots.h"
#include "port/address_text.h"
#include "port/slot.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kStatusLimit{1000};
constexpr StandInId kNone = ~StandInId{0};  // there is no stand-in, and there will be none

}  // namespace

StoppedTree::StoppedTree(ControlServer& control, StandInHost& stand_ins, std::uint64_t move_id)
    : control_(control), stand_ins_(stand_ins), move_id_(move_id) {}

StoppedTree::~StoppedTree() {
  let_ports_go();
  for (auto& process : processes_) {
    close_slots(process.contexts);
    for (const auto& context : process.stand_ins) {
      for (const StandInId id : context) {
        if (!handed_over_.contains(id)) stand_ins_.remove(id);
      }
    }
  }
}

// What a process says when it is asked afterwards is better than an errno value.
std::string StoppedTree::why_not(pid_t pid, int error) const {
  std::string what;
  try {
    if (error == ETIMEDOUT) what = control_.status(pid, kStatusLimit).rdma_cm.half_made;
    if (error == EOPNOTSUPP) what = control_.status(pid, kStatusLimit).rdma_cm.obstacle;
  } catch (const Failure&) {
    // The process has ended.
  }
  return what.empty() ? error_text(error) : "it has " + printable(what);
}

// Gives the processes that have stopped. *failure: the first that went wrong: a process does not stop, or what it says
// of its sockets is not true.
std::vector<StoppedTree::Process> StoppedTree::ask_to_stop(
    const std::vector<FerryProcess>& processes, const Residents& residents,
    std::chrono::milliseconds deadline, std::string* failure) {
  const agent::Stop request{move_id_, static_cast<std::uint32_t>(deadline.count())};
  std::vector<std::future<agent::Stopped>> answers;
  for (const auto& process : processes) {
    answers.push_back(std::async(std::launch::async, [&, pid = process.pid] {
      return control_.stop(pid, request, deadline);
    }));
  }
  std::vector<Process> stopped;
  std::set<port::Endpoint> seen;
  const auto note = [&](const std::string& error) {
    if (failure->empty()) *failure = error;
  };
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const pid_t pid = processes[i].pid;
    try {
      agent::Stopped answer = answers[i].get();
      if (answer.error != 0) {
        note(fmt::format("process {} cannot stop: {}", pid, why_not(pid, answer.error)));
        continue;
      }
      timing_.prepare_ns = std::max(timing_.prepare_ns, answer.prepare_ns);
      timing_.rdma_ns = std::max(timing_.rdma_ns, answer.suspend_ns + answer.detach_ns);
      timing_.qps += answer.qps;
      timing_.unacked_psns += answer.unacked_psns;
      Process process;
      process.process = processes[i];
      process.started = start_time(pid);
      process.inner_pid = innermost_pid(pid).value_or(pid);
      process.network = namespace_inode(pid, "net");
      process.contexts = to_slots(std::move(answer.contexts));
      stopped.push_back(std::move(process));
    } catch (const Failure& error) {
      note(error.what());
      control_.drop(pid);  // a late answer must find that nobody waits for it
      continue;
    }
    // When this fails the caller drops the process, with all others and only once: a dropped process
    // connects again at once, and a second drop would end that connection too.
    try {
      need_own_slots(pid, stopped.back().contexts, residents.of(pid).places, &seen);
    } catch (const Failure& error) {
      note(error.what());
    }
  }
  return stopped;
}

void StoppedTree::write_down(std::vector<Process>* stopped, const Recorder& record) {
  std::vector<HeldProcess> held;
  for (const auto& process : *stopped) {
    held.push_back({process.process.pid,
                    process.started,
                    process.process.control_block,
                    {process.inner_pid, process.contexts}});
  }
  record(&held);
  for (std::size_t i = 0; i < held.size(); ++i) {
    for (std::size_t j = 0; j < (*stopped)[i].contexts.size(); ++j)
      (*stopped)[i].contexts[j].names = std::move(held[i].place.contexts[j].names);
  }
}

// Called with mutex_ held. Has the processes let go of their sockets, for which stand-ins answer. Gives what failed;
// empty: nothing.
std::string StoppedTree::take_over_all(Clock::time_point began,
                                       std::chrono::milliseconds deadline) {
  std::string failure;
  for (auto& process : processes_) {
    try {
      take_over(process);
      control_.stop_taken(process.process.pid, deadline / 2);
    } catch (const Failure& error) {
      // The process still waits for stop_taken(), or has ended: without a connection it goes on by
      // itself, and nobody else may read from its sockets.
      failure = error.what();
      give_up(process);
      control_.drop(process.process.pid);
      process.back = true;
      continue;
    }
    // After the deadline the process may have closed its connection because it waited for too long.
    if (Clock::now() - began > deadline) {
      failure = fmt::format("stopping took longer than {} ms", deadline.count());
    }
  }
  return failure;
}

void StoppedTree::stop(const std::vector<FerryProcess>& processes, const Residents& residents,
                       std::chrono::milliseconds deadline, const Recorder& record) {
  const auto began = Clock::now();
  std::string failure;
  std::vector<Process> stopped = ask_to_stop(processes, residents, deadline, &failure);
  // A process near its deadline may already have gone on by itself.
  if (failure.empty() && Clock::now() - began > deadline / 2) {
    failure = fmt::format("stopping took longer than {} ms", deadline.count() / 2);
  }
  if (failure.empty() && record) {
    try {
      write_down(&stopped, record);
    } catch (const Failure& error) {
      failure = error.what();
    }
  }
  if (!failure.empty()) {
    for (auto& process : stopped) {
      close_slots(process.contexts);
      control_.drop(process.process.pid);
    }
    throw Failure(failure);
  }
  timing_.began = began + std::chrono::nanoseconds(timing_.prepare_ns);

  std::lock_guard lock(mutex_);
  processes_ = std::move(stopped);
  failure = take_over_all(began, deadline);
  if (failure.empty()) return hold_ports();
  phase_ = Phase::kRolledBack;
  for (auto& process : processes_) {
    if (!process.back) tell_to_go(process);
  }
  throw Failure(failure);
}

// A standard peer sends to UDP port 4791, whatever the slot. The process that held that port for
// the others may be among the stopped ones: then a stand-in holds it. A process that still holds it
// passes packets on. Called with mutex_ held.
void StoppedTree::hold_ports() {
  for (const auto& process : processes_) {
    const std::string netns =
        netns_.empty() ? fmt::format("/proc/{}/ns/net", process.process.pid) : netns_;
    for (std::size_t c = 0; c < process.stand_ins.size(); ++c) {
      const std::string& netdev = process.contexts[c].netdev;
      const auto& slots = process.contexts[c].slots;
      for (std::size_t s = 0; s < slots.size(); ++s) {
        if (slots[s].slot == 0 || !stand_ins_.meets_strangers(process.stand_ins[c][s])) continue;
        rnic::Slot port;
        port.local = {slots[s].local.address, port::kRoceUdpPort};
        std::vector<rnic::Slot> bound;
        try {
          bound = bind_same_slots(netns, netdev, {port});
          holders_.push_back(stand_ins_.add(bound.front()));
        } catch (const Failure&) {
          close_slots(bound);
        }
      }
    }
  }
}

void StoppedTree::let_ports_go() {
  for (const StandInId id : std::exchange(holders_, {})) stand_ins_.remove(id);
}

void StoppedTree::recover(const std::vector<HeldProcess>& processes, const std::string& netns) {
  std::lock_guard lock(mutex_);
  netns_ = netns;
  for (const auto& held : processes) {
    Process& process = processes_.emplace_back();
    process.process = {held.pid, held.control_block, {}};
    process.started = held.started;
    process.inner_pid = held.place.inner_pid;
    process.network = netns.empty() ? namespace_inode(::getpid(), "net") : inode_of_network(netns);
    process.contexts = held.place.contexts;
    for (const auto& context : process.contexts) {
      process.stand_ins.emplace_back(context.slots.size(), 0);
    }
    note_limits(process);
  }
  reopen_all();
}

std::string StoppedTree::reopen() {
  std::lock_guard lock(mutex_);
  return reopen_all();
}

// Called with mutex_ held.
std::string StoppedTree::reopen_all() {
  std::vector<std::pair<rnic::Slot*, StandInId*>> missing;
  std::vector<rnic::Slot*> slots;
  for (auto& process : processes_) {
    for (std::size_t c = 0; c < process.stand_ins.size() && !process.back; ++c) {
      for (std::size_t s = 0; s < process.stand_ins[c].size(); ++s) {
        if (process.stand_ins[c][s] != 0) continue;
        missing.emplace_back(&process.contexts[c].slots[s], &process.stand_ins[c][s]);
        slots.push_back(missing.back().first);
      }
    }
  }
  if (missing.empty()) return {};
  std::string problem = reopen_slots(netns_, slots);
  for (const auto& [slot, id] : missing) {
    if (slot->descriptor < 0) continue;
    try {
      *id = stand_ins_.add(*slot);
      slot->descriptor = -1;
    } catch (const Failure& failure) {
      problem = failure.what();
      ::close(slot->descriptor);
      slot->descriptor = -1;
    }
  }
  hold_ports();
  return problem;
}

// Called with mutex_ held.
void StoppedTree::note_limits(const Process& process) {
  for (const auto& context : process.contexts) {
    for (const auto& slot : context.slots) {
      for (const auto& entry : slot.entries) {
        if (const auto limit = transport::paused_limit_of(entry)) {
          paused_limit_ = std::max(paused_limit_, *limit);
        }
      }
    }
  }
}

std::chrono::nanoseconds StoppedTree::paused_limit() const {
  std::lock_guard lock(mutex_);
  return paused_limit_;
}

void StoppedTree::take_over(Process& process) {
  note_limits(process);
  for (auto& context : process.contexts) {
    auto& ids = process.stand_ins.emplace_back();
    for (auto& slot : context.slots) {
      ids.push_back(stand_ins_.add(slot));
      slot.descriptor = -1;
      slot.entries.clear();
    }
  }
}

void StoppedTree::give_up(Process& process) {
  for (const auto& context : process.stand_ins) {
    for (const StandInId id : context) {
      const rnic::Slot slot = stand_ins_.take_back(id);
      if (slot.descriptor >= 0) ::close(slot.descriptor);
    }
  }
  process.stand_ins.clear();
  close_slots(process.contexts);
}

// The tree may be frozen: only the kernel can reach its memory.
void StoppedTree::write_command(Process& process, agent::ControlBlock::Command command) {
  agent::ControlBlock block;
  iovec local{&block, sizeof block};
  iovec remote{reinterpret_cast<void*>(process.process.control_block), sizeof block};
  const pid_t pid = process.process.pid;
  if (::process_vm_readv(pid, &local, 1, &remote, 1, 0) != sizeof block ||
      block.magic != agent::kMagic) {
    throw Failure(
        fmt::format("cannot read the control block of process {}: {}", pid, error_text(errno)));
  }
  block.command = command;
  if (command == agent::ControlBlock::kFrozen) ++block.freezes;
  if (::process_vm_writev(pid, &local, 1, &remote, 1, 0) != sizeof block) {
    throw Failure(
        fmt::format("cannot write the control block of process {}: {}", pid, error_text(errno)));
  }
}

void StoppedTree::mark_frozen() {
  std::lock_guard lock(mutex_);
  if (phase_ != Phase::kStopped) throw Failure("the move was given up");
  for (auto& process : processes_) {
    if (process.frozen) continue;
    write_command(process, agent::ControlBlock::kFrozen);
    process.frozen = true;
  }
}

void StoppedTree::roll_back() {
  std::lock_guard lock(mutex_);
  if (phase_ != Phase::kStopped) return;
  phase_ = Phase::kRolledBack;
  for (auto& process : processes_) {
    if (!process.frozen) tell_to_go(process);
  }
}

void StoppedTree::tell_to_go(Process& process) {
  if (start_time(process.process.pid) != process.started) return;
  try {
    write_command(process, agent::ControlBlock::kGo);
  } catch (const Failure& error) {
    log::error("{}", error.what());
  }
}

std::optional<ResumeSlots> StoppedTree::wake(pid_t inner_pid) {
  std::lock_guard lock(mutex_);
  if (phase_ != Phase::kRolledBack) return std::nullopt;
  for (auto& process : processes_) {
    if (process.inner_pid != inner_pid || process.back) continue;
    if (lacks_a_device(process) || !take_back(process)) return std::nullopt;
    // The process gets duplicates: if it fails to take them it may ask again.
    auto duplicates = duplicates_of(process.contexts);
    if (!duplicates) return std::nullopt;
    return ResumeSlots{true, std::move(*duplicates)};
  }
  return std::nullopt;
}

// A device of the kernel that the process has left may be gone. Nothing could be made on it: the process asks again.
bool StoppedTree::lacks_a_device(const Process& process) {
  return std::any_of(
      process.contexts.begin(), process.contexts.end(), [](const ContextSlots& context) {
        return !context.device_behind.empty() && !device::is_own_name(context.device_behind) &&
               !node_of(context.device_behind);
      });
}

// Gives the process its slots back. After a restart of ferryd somebody else may have one of them: then the process gets
// another slot. False when there is no other one: the process has to ask again.
bool StoppedTree::take_back(Process& process) {
  for (std::size_t c = 0; c < process.stand_ins.size(); ++c) {
    const std::string& netdev = process.contexts[c].netdev;
    auto& slots = process.contexts[c].slots;
    for (std::size_t s = 0; s < process.stand_ins[c].size(); ++s) {
      StandInId& id = process.stand_ins[c][s];
      if (id != 0) {
        slots[s] = stand_ins_.take_back(id);
      } else if (slots[s].descriptor < 0) {
        try {
          slots[s] = bind_slots(netns_, netdev, {slots[s]}).front();
        } catch (const Failure& failure) {
          log::error("process {} stays stopped: {}", process.process.pid, failure.what());
          return false;
        }
      }
      id = 0;
    }
  }
  process.stand_ins.clear();
  return true;
}

void StoppedTree::resumed(pid_t inner_pid) {
  std::lock_guard lock(mutex_);
  for (auto& process : processes_) {
    if (process.inner_pid != inner_pid) continue;
    close_slots(process.contexts);
    process.back = true;
  }
  // Until all are back, stand-ins at UDP port 4791 pass packets on to those that are back, too.
  const bool all = std::all_of(processes_.begin(), processes_.end(),
                               [](const Process& process) { return process.back; });
  if (all) let_ports_go();
}

bool StoppedTree::all_back() const {
  std::lock_guard lock(mutex_);
  return std::all_of(processes_.begin(), processes_.end(),
                     [](const Process& process) { return process.back; });
}

// Called with mutex_ held.
void StoppedTree::leave_network(Process& process) {
  for (const auto& context : process.stand_ins) {
    for (const StandInId id : context) {
      if (id == 0) continue;
      const rnic::Slot slot = stand_ins_.take_back(id);
      if (slot.descriptor >= 0) ::close(slot.descriptor);
    }
  }
  close_slots(process.contexts);
  process.stand_ins.clear();
  for (const auto& context : process.contexts) {
    process.stand_ins.emplace_back(context.slots.size(), 0);
  }
}

void StoppedTree::restored(pid_t pid) {
  const pid_t inner_pid = innermost_pid(pid).value_or(pid);
  std::lock_guard lock(mutex_);
  if (phase_ != Phase::kRolledBack) throw Failure("its move has not been given up");
  for (auto& process : processes_) {
    if (process.inner_pid != inner_pid || process.back) continue;
    if (is_alive(process.process.pid) && start_time(process.process.pid) == process.started) {
      throw Failure(
          fmt::format("process {}, of which it is a copy, still runs here", process.process.pid));
    }
    process.process.pid = pid;
    process.started = start_time(pid);
    if (namespace_inode(pid, "net") == process.network) continue;
    leave_network(process);
    netns_ = network_of(pid);
    process.network = namespace_inode(pid, "net");
  }
}

bool StoppedTree::disown() {
  constexpr std::uint64_t kNever = 1;
  std::lock_guard lock(mutex_);
  const bool goes_on = std::any_of(processes_.begin(), processes_.end(),
                                   [](const Process& process) { return process.back; });
  if (goes_on) return false;
  for (auto& process : processes_) {
    process.process.pid = 0;
    process.started = kNever;
  }
  return true;
}

bool StoppedTree::fits(const std::vector<ProcessSlots>& places) const {
  std::lock_guard lock(mutex_);
  return std::equal(processes_.begin(), processes_.end(), places.begin(), places.end(),
                    [](const Process& process, const ProcessSlots& place) {
                      return process.inner_pid == place.inner_pid &&
                             std::equal(process.contexts.begin(), process.contexts.end(),
                                        place.contexts.begin(), place.contexts.end(),
                                        [](const ContextSlots& old, const ContextSlots& now) {
                                          return old.slots.size() == now.slots.size() &&
                                                 old.device_behind.empty() ==
                                                     now.device_behind.empty();
                                        });
                    });
}

void StoppedTree::need_same_places(const std::vector<ProcessSlots>& places) const {
  std::lock_guard lock(mutex_);
  for (std::size_t p = 0; p < processes_.size(); ++p) {
    const Process& process = processes_[p];
    for (std::size_t c = 0; c < process.stand_ins.size(); ++c) {
      for (std::size_t s = 0; s < process.stand_ins[c].size(); ++s) {
        const port::Endpoint& old = process.contexts[c].slots[s].local;
        if (places[p].contexts[c].slots[s].local == old) continue;
        if (const auto peer = stand_ins_.standard_peer(process.stand_ins[c][s])) {
          throw Failure(
              fmt::format("peer {} speaks no migration messages and the address {} cannot move "
                          "along: the peer was connected after the check; try again",
                          to_string(peer->address), to_string(old)));
        }
      }
    }
  }
}

std::vector<StoppedTree::Departed> StoppedTree::commit(const std::vector<ProcessSlots>& places,
                                                       const Place& there,
                                                       std::chrono::nanoseconds age) {
  std::lock_guard lock(mutex_);
  std::vector<Departed> departed;
  phase_ = Phase::kCommitted;
  let_ports_go();
  for (auto& process : processes_) {
    const auto place = std::find_if(
        places.begin(), places.end(),
        [&](const ProcessSlots& candidate) { return candidate.inner_pid == process.inner_pid; });
    if (place == places.end()) continue;
    for (std::size_t c = 0; c < process.stand_ins.size(); ++c) {
      for (std::size_t s = 0; s < process.stand_ins[c].size(); ++s) {
        const rnic::Slot& old = process.contexts[c].slots[s];
        const rnic::Slot& slot = place->contexts.at(c).slots.at(s);
        const StandInId id = process.stand_ins[c][s];
        Departed gone{0, there};
        gone.place.origin = old.origin;
        gone.place.location = slot.local;
        gone.place.epoch = old.epoch;
        // At an address that moves along the new place answers by itself.
        if (slot.local == old.local) {
          stand_ins_.remove(id);
          process.stand_ins[c][s] = kNone;
        } else {
          stand_ins_.committed(id, slot.local, slot.slot, old.epoch, age);
          const bool keeps = id != 0 && old.local == old.origin;
          if (keeps && handed_over_.insert(id).second) gone.stand_in = id;
        }
        if (old.has_origin()) departed.push_back(std::move(gone));
      }
    }
  }
  return departed;
}

void StoppedTree::peer_knows(std::uint32_t virtual_qpn) {
  std::lock_guard lock(mutex_);
  for (const auto& process : processes_) {
    for (const auto& context : process.stand_ins) {
      for (const StandInId id : context) stand_ins_.peer_knows(id, virtual_qpn);
    }
  }
}

bool StoppedTree::expired() {
  std::lock_guard lock(mutex_);
  for (const auto& process : processes_) {
    for (const auto& context : process.stand_ins) {
      for (const StandInId id : context) {
        // A stand-in that does not exist yet has told nobody.
        if (id == 0 || !stand_ins_.expired(id)) return false;
      }
    }
  }
  return true;
}

std::vector<ProcessSlots> StoppedTree::sockets() const {
  std::lock_guard lock(mutex_);
  std::vector<ProcessSlots> places;
  for (const auto& process : processes_) places.push_back({process.inner_pid, process.contexts});
  return places;
}

bool StoppedTree::has_process(pid_t pid) const {
  std::lock_guard lock(mutex_);
  return std::any_of(processes_.begin(), processes_.end(), [&](const Process& process) {
    return process.process.pid == pid && process.started == start_time(pid);
  });
}

bool StoppedTree::all_gone() const {
  std::lock_guard lock(mutex_);
  return std::all_of(processes_.begin(), processes_.end(), [](const Process& process) {
    return process.back || process.started != start_time(process.process.pid);
  });
}

}  // namespace ferry::host
