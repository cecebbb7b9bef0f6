#include "host/custody/custody.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgets that C++ includes it
}

#include "base/failure.h"
#include "base/log.h"
#include "device/own_names.h"
#include "device/parcel.h"
#include "ferry.pb.h"
#include "host/control/caused_lines.h"
#include "host/image/late_pages.h"
#include "host/journal/decision_log.h"
#include "host/move/destination/arrivals.h"
#include "host/move/slots_message.h"
#include "host/move/source/departures.h"
#include "host/peers/peer.h"
#include "host/peers/peer_record.h"
#include "host/peers/this_host.h"
#include "host/proc/network_namespace.h"
#include "host/proc/process_tree.h"
#include "host/standin/slots.h"
#include "host/standin/whereabouts.h"
#include "host/units/unit.h"

namespace ferry::host {
namespace {

constexpr std::chrono::seconds kAnswerLimit{10};
constexpr std::chrono::seconds kWakeLimit{10};  // a claim counts for so long at least

// The first process of a restored tree: the highest ancestor of `pid` in the same pid namespace.
pid_t root_above(pid_t pid) {
  const std::uint64_t inode = namespace_inode(pid, "pid");
  if (inode == namespace_inode(::getpid(), "pid")) return pid;
  pid_t root = pid;
  for (const pid_t ancestor : ancestors(pid)) {
    if (namespace_inode(ancestor, "pid") != inode) break;
    root = ancestor;
  }
  return root;
}

bool is_running(const Held& held) {
  return std::any_of(held.processes.begin(), held.processes.end(), [](const HeldProcess& process) {
    return start_time(process.pid) == process.started && is_alive(process.pid);
  });
}

// Peers over a device of the kernel hold their requests while the program moves: a checkpoint may be restored much
// later, or never.
void need_own_devices(ControlServer& control, const std::string& program,
                      const std::vector<FerryProcess>& processes) {
  for (const FerryProcess& process : processes) {
    const agent::StatusReply status = control.status(process.pid, kAnswerLimit);
    if (status.rdma_cm.channels > 0) {
      throw Failure(fmt::format(
          "'{}' uses rdma_cm of the kernel: ferry move moves it, and nobody can checkpoint it",
          program));
    }
    for (const auto& context : status.contexts) {
      const std::string device = device::device_behind(context.place);
      if (device.empty()) continue;
      throw Failure(fmt::format(
          "'{}' uses {}, {}a device of the kernel: ferry move moves it, and nobody can checkpoint "
          "it",
          program, printable(device), device::is_own_name(device) ? "in the place of " : ""));
    }
  }
}

}  // namespace

Custody::Custody(const ThisHost& host, ControlServer& control, StandInHost& stand_ins,
                 DecisionLog& decisions, const Residents& residents, Whereabouts& whereabouts,
                 Departures& departures, Arrivals& arrivals, Accounts& accounts)
    : host_(host),
      control_(control),
      stand_ins_(stand_ins),
      decisions_(decisions),
      residents_(residents),
      whereabouts_(whereabouts),
      departures_(departures),
      arrivals_(arrivals),
      accounts_(accounts) {}

// --- the dump

std::string Custody::stop(pid_t root) {
  LatePages(host_).wait(program_name(root).value_or("?"), root,
                        std::chrono::steady_clock::now() + kAnswerLimit, [] {});
  const auto processes = ferry_processes(control_, root);
  if (processes.empty()) return {};
  auto kept = std::make_shared<Kept>();
  kept->id = new_move_id();
  kept->netns = namespace_inode(root, "net");
  kept->held = {program_name(root).value_or("?"),
                {},
                network_of(root),
                {},
                stamp_now().boot,
                root,
                start_time(root),
                {}};
  if (!kept->held.netns.empty()) {
    kept->exception = std::make_unique<NetworkRules>(root, NetworkRules::Effect::kPassLock);
    kept->network.reset(::open(kept->held.netns.c_str(), O_RDONLY | O_CLOEXEC));
  }
  kept->tree = std::make_unique<StoppedTree>(control_, stand_ins_, kept->id);
  {
    std::lock_guard lock(mutex_);
    kept_.emplace(kept->id, kept);
  }
  v1::PastMove past;
  past.set_move_id(kept->id);
  past.set_kind("checkpoint");
  past.set_program(kept->held.program);
  past.set_from(host_.name);
  past.set_owner(owner_of_program(root));
  accounts_.begun(Side::kSource, std::move(past));
  try {
    need_own_devices(control_, kept->held.program, processes);
    kept->tree->stop(processes, residents_, host_.limits.stop,
                     [&](const std::vector<HeldProcess>* stopped) {
                       kept->held.processes = *stopped;
                       decisions_.note(Journal::held(kept->id, Side::kSource, kept->held));
                       decisions_.note(Journal::kept(kept->id));
                     });
  } catch (const Failure& failure) {
    accounts_.ended(Side::kSource, kept->id,
                    {MoveOutcome::kFailed, "stop", failure.what(), {}, {}, nullptr});
    if (kept->tree->all_back()) forget(*kept);
    throw;
  }
  // From now on the RNICs of these processes do not end with them.
  std::vector<pid_t> pids;
  for (const auto& process : kept->held.processes) pids.push_back(process.pid);
  whereabouts_.left(pids, {});
  log::info("stopped the {} Ferry processes of process {} for checkpoint {:016x}", processes.size(),
            root, kept->id);
  return to_text({kept->id, kept->held.program, host_.name, host_.address});
}

bool Custody::frozen(pid_t pid) {
  const auto found = kept_of(pid);
  if (found) found->tree->mark_frozen();
  return found != nullptr;
}

bool Custody::dump_failed(pid_t pid) {
  const auto found = kept_of(pid);
  if (found) found->tree->roll_back();
  return found != nullptr;
}

// --- the keeper

bool Custody::is_here(const CheckpointNote& note) const {
  return note.host == host_.name && note.ferryd == host_.address;
}

std::shared_ptr<Custody::Kept> Custody::kept(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto found = kept_.find(id);
  return found == kept_.end() ? nullptr : found->second;
}

std::shared_ptr<Custody::Kept> Custody::kept_of(pid_t pid) {
  std::lock_guard lock(mutex_);
  for (const auto& [id, kept] : kept_) {
    if (kept->tree->has_process(pid) || is_below(pid, kept->held.root)) return kept;
  }
  return nullptr;
}

void Custody::forget(const Kept& kept) {
  decisions_.over(kept.id, Side::kSource);
  std::shared_ptr<Kept> last;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  const auto found = kept_.find(kept.id);
  if (found == kept_.end()) return;
  last = std::move(found->second);
  kept_.erase(found);
}

v1::ClaimReply Custody::claimed(std::uint64_t id, const std::string& by) {
  const auto found = kept(id);
  if (!found) {
    if (const auto record = decisions_.find(id, Side::kSource)) {
      throw Failure(fmt::format("it was restored on {} already", parse_peer(record->peer).name));
    }
    // A restore elsewhere is forgotten as well, when nobody asks at the old place any more.
    throw Failure(fmt::format("its program has gone on since, on {} or elsewhere", host_.name));
  }
  if (is_running(found->held)) {
    throw Failure(fmt::format("its program still runs on {}", host_.name));
  }
  std::lock_guard lock(found->claiming);
  if (!found->claimed_by.empty() && found->claimed_by != by) {
    throw Failure(fmt::format("it is being restored on {}", found->claimed_by));
  }
  found->claimed_by = by;
  v1::ClaimReply reply;
  reply.set_program(found->held.program);
  for (const auto& place : found->tree->sockets()) to_message(place, reply.add_processes());
  return reply;
}

void Custody::unclaimed(std::uint64_t id, const std::string& by) {
  const auto found = kept(id);
  if (!found) return;
  std::lock_guard lock(found->claiming);
  if (found->claimed_by == by) found->claimed_by.clear();
}

void Custody::taken(const v1::TakeRequest& request, const std::string& by) {
  const std::uint64_t id = request.checkpoint();
  const std::string peer = by + "@" + request.ferryd();
  const auto found = kept(id);
  if (!found) {
    // The answer to a first request may have got lost.
    const auto record = decisions_.find(id, Side::kSource);
    if (record && record->peer == peer) return;
    throw Failure("it is not kept any more");
  }
  std::lock_guard lock(found->claiming);
  // A keeper that has been restarted knows of no claim.
  if (!found->claimed_by.empty() && found->claimed_by != by) {
    throw Failure(fmt::format("it is being restored on {}", found->claimed_by));
  }
  found->claimed_by = by;
  const Going going{by, from_messages(request.processes())};
  if (!found->tree->fits(going.places)) throw Failure("malformed request");
  found->tree->need_same_places(going.places);
  found->held.peer = host_.credentials != nullptr ? peer : "@" + request.ferryd();
  decisions_.note(Journal::held(id, Side::kSource, found->held));
  decisions_.note(Journal::going(id, going));
  decisions_.record(Side::kSource, {Decision::kConfirmed, found->held.program, peer, {id}});
  {
    std::lock_guard other(mutex_);
    kept_.erase(id);
  }
  accounts_.ended(Side::kSource, id, {MoveOutcome::kMoved, {}, {}, by, {}, nullptr});
  const auto entries = decisions_.entries();
  departures_.take_up(id, entries.at({id, Side::kSource}), std::move(found->tree));
}

bool Custody::recover(std::uint64_t id, const Journal::Entry& entry) {
  if (!entry.kept || entry.record) return false;
  if (is_running(*entry.held)) return false;
  auto kept = std::make_shared<Kept>();
  kept->id = id;
  kept->held = *entry.held;
  kept->netns = kept->held.netns.empty() ? namespace_inode(::getpid(), "net")
                                         : inode_of_network(kept->held.netns);
  kept->tree = std::make_unique<StoppedTree>(control_, stand_ins_, id);
  kept->tree->recover(kept->held.processes, kept->held.netns);
  {
    std::lock_guard lock(mutex_);
    kept_.emplace(id, std::move(kept));
  }
  for (const auto& process : control_.processes()) registered(process.pid);
  return true;
}

// --- the restore

std::shared_ptr<Custody::Claim> Custody::claim_of(std::uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto found = claims_.find(id);
  return found == claims_.end() ? nullptr : found->second;
}

void Custody::claim(pid_t criu, const std::string& text) {
  const auto note = parse_note(text);
  if (!note) throw Failure(fmt::format("{} in the image is damaged", agent::kCheckpointFile));
  const auto fail = [&](const std::string& reason) {
    throw Failure(fmt::format("'{}' cannot go on from this checkpoint: {}", note->program, reason));
  };
  if (const auto other = claim_of(note->id)) {
    if (!has_ended(other->criu) || Clock::now() - other->since < kWakeLimit) {
      fail(fmt::format("it is being restored on {}", host_.name));
    }
  }
  auto claim = std::make_shared<Claim>();
  claim->note = *note;
  claim->criu.reset(::pidfd_open(criu, 0));
  try {
    v1::ClaimReply reply;
    if (is_here(*note)) {
      reply = claimed(note->id, host_.name);
    } else if (note->ferryd.empty() || host_.address.empty()) {
      throw Failure(fmt::format("it was made on {}, and the ferryd of {} serves that host only",
                                note->host, note->ferryd.empty() ? note->host : host_.name));
    } else {
      v1::ClaimRequest request;
      request.set_checkpoint(note->id);
      request.set_version(host_.version);
      request.set_host(host_.name);
      Peer keeper(note->ferryd, host_.credentials, note->host);
      keeper.call(request, &reply, kAnswerLimit);
    }
    claim->old = from_messages(reply.processes());
  } catch (const Failure& failure) {
    fail(failure.what());
  }
  std::lock_guard lock(mutex_);
  claims_[note->id] = std::move(claim);
}

void Custody::restore_failed(pid_t, const std::string& text) {
  const auto note = parse_note(text);
  if (!note) return;
  {
    std::lock_guard lock(mutex_);
    claims_.erase(note->id);
  }
  if (is_here(*note)) return unclaimed(note->id, host_.name);
  v1::UnclaimRequest request;
  v1::UnclaimReply reply;
  request.set_checkpoint(note->id);
  request.set_host(host_.name);
  Peer keeper(note->ferryd, host_.credentials, note->host);
  keeper.call(request, &reply, kAnswerLimit);
}

void Custody::restored(pid_t pid, const std::string& text) {
  const auto note = parse_note(text);
  const auto claim = note ? claim_of(note->id) : nullptr;
  if (!claim) throw Failure("the ferryd that knew of this restore is no more");
  std::lock_guard lock(claim->waking);
  claim->processes[pid] = start_time(pid);
}

// Only CRIU's word counts: the ids of checkpoints are no secrets, and in a pid namespace of one's
// own anybody can have any inner pid.
bool Custody::is_restored(Claim& claim, pid_t pid) {
  std::lock_guard lock(claim.waking);
  const auto found = claim.processes.find(pid);
  return found != claim.processes.end() && found->second == start_time(pid);
}

bool Custody::is_restoring(std::uint64_t id) {
  return claim_of(id) != nullptr;
}

// --- the processes

std::optional<WakeUp> Custody::awake(pid_t pid, std::uint64_t id) {
  const auto here = kept(id);
  const auto claim = claim_of(id);
  const pid_t inner = innermost_pid(pid).value_or(pid);
  if (here && here->tree->has_process(pid)) {
    // The process itself goes on: its dump has failed, or left it running.
    here->tree->roll_back();
    return WakeUp{here->tree->wake(inner)};
  }
  if (!claim) {
    if (!here) return std::nullopt;
    warn_of(pid, "process {} was restored without CRIU's plugin: it stays stopped", pid);
    return WakeUp{std::nullopt, 1000};
  }
  if (!is_restored(*claim, pid)) {
    warn_of(pid, "process {} asks for the sockets of checkpoint {:016x}, which is not its own", pid,
            id);
    return WakeUp{std::nullopt, 1000};
  }
  if (here && namespace_inode(pid, "net") == here->netns) {
    // It is restored where it was: it gets the sockets that its stand-ins have.
    here->tree->roll_back();
    return WakeUp{here->tree->wake(inner)};
  }
  try {
    return WakeUp{wake(*claim, pid)};
  } catch (const Failure& failure) {
    log::error("'{}' cannot go on yet: {}", claim->note.program, failure.what());
    return WakeUp{std::nullopt, 500};
  }
}

std::optional<ResumeSlots> Custody::wake(Claim& claim, pid_t pid) {
  std::lock_guard lock(claim.waking);
  const std::uint64_t id = claim.note.id;
  if (!claim.arrival) {
    if (claim.held.processes.empty()) bind(claim, pid);
    v1::TakeRequest request;
    request.set_checkpoint(id);
    request.set_host(host_.name);
    request.set_ferryd(host_.address);
    for (const auto& process : claim.held.processes) {
      to_message(process.place, request.add_processes());
    }
    if (is_here(claim.note)) {
      taken(request, host_.name);
    } else {
      v1::TakeReply reply;
      Peer keeper(claim.note.ferryd, host_.credentials, claim.note.host);
      keeper.call(request, &reply, kAnswerLimit);
    }
    // After the keeper's record: in the journal of one host this note ends the entry of the old
    // place.
    decisions_.note(Journal::held(id, Side::kDestination, claim.held));
    decisions_.record(Side::kDestination, {Decision::kCommitted, claim.note.program, "", {id}});
    claim.arrival = arrivals_.take_up(id, claim.held);
    if (!is_here(claim.note)) tell_arrival(claim);
  }
  auto resume = claim.arrival->wake(innermost_pid(pid).value_or(pid));
  std::lock_guard other(mutex_);
  claims_.erase(id);  // the other processes ask the arrival
  return resume;
}

void Custody::tell_arrival(const Claim& claim) {
  v1::PastMove past;
  past.set_move_id(claim.note.id);
  past.set_kind("checkpoint");
  past.set_program(claim.note.program);
  past.set_from(claim.note.host);
  past.set_to(host_.name);
  past.set_owner(owner_of_program(claim.held.root));
  accounts_.begun(Side::kDestination, std::move(past));
  accounts_.ended(Side::kDestination, claim.note.id,
                  {MoveOutcome::kMoved, {}, {}, {}, {}, nullptr});
}

// Binds the sockets of all processes of the tree.
void Custody::bind(Claim& claim, pid_t pid) {
  const pid_t root = root_above(pid);
  const std::string keeper = host_.credentials != nullptr ? claim.note.host : std::string();
  Held held{claim.note.program, keeper + "@" + claim.note.ferryd,
            network_of(pid),    {},
            stamp_now().boot,   root,
            start_time(root),   {}};
  const auto tree = process_tree(root);
  try {
    for (const ProcessSlots& old : claim.old) {
      HeldProcess& process = held.processes.emplace_back();
      process.place.inner_pid = old.inner_pid;
      for (const pid_t each : tree) {
        if (innermost_pid(each) == old.inner_pid) process.pid = each;
      }
      process.started = start_time(process.pid);
      for (const auto& context : old.contexts) {
        process.place.contexts.push_back(
            {context.netdev, bind_slots(held.netns, context.netdev, context.slots)});
      }
    }
  } catch (const Failure&) {
    for (auto& process : held.processes) close_slots(process.place.contexts);
    throw;
  }
  claim.held = std::move(held);
}

bool Custody::resumed(pid_t pid, std::uint64_t id) {
  const auto found = kept(id);
  if (!found) return false;
  const auto claim = claim_of(id);
  if (!found->tree->has_process(pid) && (!claim || !is_restored(*claim, pid))) return false;
  found->tree->resumed(innermost_pid(pid).value_or(pid));
  if (!found->tree->all_back()) return true;
  {
    std::lock_guard lock(mutex_);
    claims_.erase(id);
  }
  accounts_.ended(Side::kSource, id, {MoveOutcome::kReturned, {}, {}, host_.name, {}, nullptr});
  forget(*found);
  return true;
}

// The process has never let go of its sockets, or has them back from a former ferryd.
void Custody::registered(pid_t pid) {
  std::shared_ptr<Kept> found;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, kept] : kept_) {
      if (kept->tree->has_process(pid)) found = kept;
    }
  }
  if (found) resumed(pid, found->id);
}

void Custody::keep_house() {
  std::vector<std::shared_ptr<Kept>> old;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, kept] : kept_) {
      if (Clock::now() - kept->since > host_.limits.checkpoint) old.push_back(kept);
    }
  }
  for (const auto& kept : old) {
    if (is_running(kept->held)) continue;
    accounts_.ended(Side::kSource, kept->id,
                    {MoveOutcome::kLost, {}, "nobody has restored it", {}, {}, nullptr});
    forget(*kept);
    for (const auto& process : kept->held.processes) {
      for (const auto& context : process.place.contexts) whereabouts_.ended(context.slots);
    }
  }
}

}  // namespace ferry::host
