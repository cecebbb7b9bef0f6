#include "host/ferryd/daemon.h"

#include <fmt/core.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <set>

#include "base/failure.h"
#include "base/log.h"
#include "ferry.pb.h"
#include "host/control/caused_lines.h"
#include "host/directory/directory.h"
#include "host/ferryd/ps.h"
#include "host/move/settle.h"
#include "host/proc/process_tree.h"
#include "host/proc/subprocess.h"
#include "host/standin/whereabouts.h"
#include "host/units/stdio_file.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kImageFactor = 2;  // image in memory beside the restored pages
constexpr seconds kAskEvery{2};            // sources of arrivals that are over

// Their host was rebooted: other processes have their pids.
void forget_processes(Held* held) {
  constexpr std::uint64_t kNever = 1;
  held->root = 0;
  held->started = kNever;
  for (auto& process : held->processes) {
    process.pid = 0;
    process.started = kNever;
  }
}

// Whoever has the process id now: a network that is named after a process is gone with it.
void forget_networks_of_others(Held* held) {
  constexpr std::string_view kProcesses = "/proc/";
  if (!held->netns.starts_with(kProcesses)) return;
  const pid_t pid = std::atoi(held->netns.c_str() + kProcesses.size());
  if (pid == held->root && start_time(pid) == held->started) return;
  for (const auto& process : held->processes) {
    if (pid == process.pid && start_time(pid) == process.started) return;
  }
  held->netns = "/proc/0/ns/net";  // nobody's
}

}  // namespace

Daemon::Daemon(Host& host)
    : host_(host),
      custody_(host, {[this](std::uint64_t id, std::shared_ptr<FormerMove> former) {
                        std::lock_guard lock(mutex_);
                        formers_[id] = std::move(former);
                      },
                      [this](std::uint64_t id, std::shared_ptr<Arrival> arrival) {
                        std::lock_guard lock(mutex_);
                        arrivals_[id] = std::move(arrival);
                      }}),
      podman_(host, custody_, [this](std::uint64_t id) { return arrival(id); }) {}

Daemon::~Daemon() {
  host_.stopping = true;
  {
    std::lock_guard lock(mutex_);
    ended_.notify_all();
  }
  if (housekeeper_.joinable()) housekeeper_.join();
}

// --- former ferryds

void Daemon::recover() {
  for (auto& [key, entry] : host_.decisions->entries()) {
    try {
      if (entry.held && entry.held->boot != stamp_now().boot) forget_processes(&*entry.held);
      if (entry.held) forget_networks_of_others(&*entry.held);
      recover(key.first, key.second, entry);
      if (entry.podman) podman_.recover(key.first, key.second, entry);
    } catch (const std::exception& failure) {
      log::error("cannot take up move {:016x} of a former ferryd: {}", key.first, failure.what());
    }
  }
  host_.units->clear_up_arrivals();
  housekeeper_ = std::thread([this] { keep_house(); });
  std::lock_guard lock(mutex_);
  recovered_ = true;
  ended_.notify_all();
}

void Daemon::recover(std::uint64_t move_id, Side side, const Journal::Entry& entry) {
  if (side == Side::kSource) {
    if (entry.podman && !entry.held) return;  // it was not stopped
    if (entry.over) return keep_origins_again(host_, move_id, entry);
    if (custody_.recover(move_id, entry)) return;
    {
      std::lock_guard lock(mutex_);
      if (formers_.contains(move_id)) return;
    }
    auto former = std::make_shared<FormerMove>(host_, move_id, entry);
    std::lock_guard lock(mutex_);
    formers_.emplace(move_id, std::move(former));
    return;
  }
  if (!DestinationDecision::recovered(entry.decision()).committed()) {
    if (entry.podman) return;  // forgotten when nothing is left of it
    return host_.decisions->forget(move_id, side);
  }
  if (!entry.held || entry.over) return;
  auto arrival = std::make_shared<Arrival>(host_, move_id, *entry.held);
  for (const auto& process : host_.control->processes()) {
    if (arrival->has_process(process.pid)) {
      arrival->registered(innermost_pid(process.pid).value_or(process.pid));
    }
  }
  std::lock_guard lock(mutex_);
  arrivals_.emplace(move_id, std::move(arrival));
}

void Daemon::await_recovery() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return recovered_ || host_.stopping; });
}

std::shared_ptr<FormerMove> Daemon::former(std::uint64_t move_id) {
  await_recovery();
  std::lock_guard lock(mutex_);
  const auto found = formers_.find(move_id);
  return found == formers_.end() ? nullptr : found->second;
}

// --- other ferryds

// The name of the host that asks.
static std::string asker(const std::string& said, const std::string& from) {
  if (!from.empty() && said != from) {
    throw Failure(
        fmt::format("refused: it calls itself '{}', and its certificate is of {}; start its ferryd "
                    "with --host {}",
                    printable(said), from, from));
  }
  return said;
}

void Daemon::need_same_version(const std::string& host, const std::string& version) const {
  if (version == host_.version) return;
  throw Failure(fmt::format("{} runs Ferry {}, {} runs Ferry {}; install the same on both",
                            host_.name, host_.version, host, version));
}

void Daemon::check(const v1::CheckRequest& request, const std::string& from) {
  await_recovery();  // what did not arrive at a former ferryd is in nobody's way then
  need_same_version(asker(request.host(), from), request.version());
  if (request.host() == host_.name) {
    throw Failure(fmt::format("'{}' is on {} already", request.program(), host_.name));
  }
  if (const std::string problem = host_.criu->unusable(); !problem.empty()) throw Failure(problem);
  const std::uint64_t needed =
      kImageFactor * (request.resident_bytes() + request.group_bytes()) + kHeadroom;
  if (const std::uint64_t free = host_.room->available(); needed > free) {
    throw Failure(fmt::format("not enough memory on {} for '{}'{}: {} MiB needed, {} MiB free",
                              host_.name, request.program(),
                              request.group_bytes() > 0 ? " and those that move with it" : "",
                              needed >> 20, free >> 20));
  }
  host_.room->need(request.image_bytes());
  if (request.has_podman()) podman_.check(request);
  if (!request.has_podman()) {
    host_.units->kind(request.kind())
        .check_arrival(host_.name, request.program(), request.details());
  }
  for (const auto& netdev : request.netdevs()) {
    if (::if_nametoindex(netdev.c_str()) == 0) {
      throw Failure(fmt::format("{} has no network interface {}, which '{}' uses", host_.name,
                                netdev, request.program()));
    }
  }
  if (request.has_stdio()) check_stdio_file(from_message(request.stdio()).file);
  const std::set<pid_t> ids{request.ids().begin(), request.ids().end()};
  if (const auto taken = find_taken(ids, host_.name, request.program(), host_.is_taken);
      !taken.empty()) {
    throw Failure(taken);
  }
}

std::shared_ptr<Arrival> Daemon::prepare(const v1::PrepareRequest& request,
                                         const std::string& from) {
  await_recovery();
  if (host_.stopping) throw Failure(fmt::format("the ferryd of {} is ending", host_.name));
  if (request.version() != host_.version || request.move_id() == 0) {
    throw Failure("malformed request");
  }
  if (request.group().program() >= std::max(request.group().programs(), 1u)) {
    throw Failure("malformed request");
  }
  std::shared_ptr<ArrivalGroup> group;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, other] : arrivals_) {
      if (id == request.move_id() ||
          (other->program() == request.program() && !other->is_over() &&
           !host_.units->kind(request.kind()).name_is_free(request.program()))) {
        throw Failure(fmt::format("'{}' arrives on {} already", request.program(), host_.name));
      }
    }
    const std::size_t programs = std::max(request.group().programs(), 1u);
    auto& known = groups_[request.has_group() ? request.group().id() : request.move_id()];
    group = known.lock();
    if (!group) {
      known = group = std::make_shared<ArrivalGroup>(
          *host_.decisions, host_.stopping, host_.credentials,
          ArrivalGroup::Source{request.source(), from},
          ArrivalMachine(programs, host_.limits.source, ArrivalGroup::now()));
    }
    group->need(programs, from);
  }
  host_.directory->met(request.source(), from);
  auto unit = host_.units->kind(request.kind()).arrive(request.program(), request.details());
  auto arrival = std::make_shared<Arrival>(host_, std::move(group), std::move(unit), request, from);
  std::lock_guard lock(mutex_);
  arrivals_.emplace(request.move_id(), arrival);
  return arrival;
}

ImageToken Daemon::prepare_podman(const v1::PrepareRequest& request, const std::string& from) {
  await_recovery();
  if (host_.stopping) throw Failure(fmt::format("the ferryd of {} is ending", host_.name));
  if (request.version() != host_.version || request.move_id() == 0) {
    throw Failure("malformed request");
  }
  host_.directory->met(request.source(), from);
  return podman_.prepare(request, from);
}

std::optional<std::uint64_t> Daemon::restore_podman(std::uint64_t move_id, milliseconds limit,
                                                    const std::string& from) {
  return podman_.restore(move_id, limit, from);
}

std::shared_ptr<Arrival> Daemon::arrival(std::uint64_t move_id) {
  await_recovery();
  std::lock_guard lock(mutex_);
  const auto found = arrivals_.find(move_id);
  return found == arrivals_.end() ? nullptr : found->second;
}

std::shared_ptr<Arrival> Daemon::arrival_from(std::uint64_t move_id, const std::string& from) {
  auto found = arrival(move_id);
  if (found) need_source(found->from(), from);
  return found;
}

Answer Daemon::commit(std::uint64_t move_id, const std::string& from, std::string* reason) {
  if (const auto found = arrival_from(move_id, from)) return found->commit(reason);
  if (custody_.is_restoring(move_id)) return Answer::kUnknown;
  // A ferryd that started anew knows nothing of it: what it had restored is gone.
  *reason = "the program is not there any more";
  return answer_of_former(move_id);
}

Answer Daemon::abort(std::uint64_t move_id, const std::string& from) {
  await_recovery();
  if (const auto podman = podman_.abort(move_id, from)) return *podman;
  if (const auto found = arrival_from(move_id, from)) return found->abort("the source gave up");
  return answer_of_former(move_id);
}

// An arrival of a ferryd that is no more: unless it is committed it never will be.
Answer Daemon::answer_of_former(std::uint64_t move_id) {
  return DestinationDecision::recovered(host_.decisions->decision(move_id, Side::kDestination))
      .answer();
}

Answer Daemon::decision(std::uint64_t move_id) {
  await_recovery();
  if (const auto podman = podman_.decision(move_id)) return *podman;
  if (const auto move = find_move(move_id)) return move->group().answer();
  if (const auto left = former(move_id)) return left->answer();
  return SourceDecision::recovered(host_.decisions->decision(move_id, Side::kSource)).answer();
}

v1::ClaimReply Daemon::claimed(const v1::ClaimRequest& request, const std::string& from) {
  await_recovery();
  const std::string by = asker(request.host(), from);
  need_same_version(by, request.version());
  return custody_.claimed(request.checkpoint(), by);
}

void Daemon::unclaimed(const v1::UnclaimRequest& request, const std::string& from) {
  await_recovery();
  custody_.unclaimed(request.checkpoint(), asker(request.host(), from));
}

void Daemon::taken(const v1::TakeRequest& request, const std::string& from) {
  await_recovery();
  const std::string by = asker(request.host(), from);
  host_.directory->met(request.ferryd(), from);
  custody_.taken(request, by);
}

// --- the control protocol

std::shared_ptr<Move> Daemon::move_of_root(pid_t root) {
  std::lock_guard lock(mutex_);
  for (const auto& [id, move] : moves_) {
    if (move->unit().root() == root && move->group().undecided()) return move;
  }
  return nullptr;
}

std::shared_ptr<Move> Daemon::move_of_process(pid_t pid) {
  std::lock_guard lock(mutex_);
  for (const auto& [id, move] : moves_) {
    if (move->group().undecided() &&
        (move->has_process(pid) || is_below(pid, move->unit().root()))) {
      return move;
    }
  }
  return nullptr;
}

std::shared_ptr<Move> Daemon::find_move(std::uint64_t move_id) {
  std::lock_guard lock(mutex_);
  const auto found = moves_.find(move_id);
  return found == moves_.end() ? nullptr : found->second;
}

// One side of a move is on this host, the other on another.
std::shared_ptr<UnderWay> Daemon::under_way(std::uint64_t move_id) {
  if (auto arriving = arrival(move_id)) return arriving;
  if (auto move = find_move(move_id)) return move;
  return former(move_id);
}

agent::Done Daemon::pause_tree(pid_t root) {
  try {
    if (const auto move = move_of_root(root)) {
      move->pause_tree();
      return {};
    }
    return {0, "", custody_.stop(root)};
  } catch (const std::exception& failure) {
    return {EIO, failure.what(), ""};
  }
}

agent::Done Daemon::frozen(pid_t pid) {
  try {
    if (const auto move = move_of_process(pid))
      move->frozen();
    else if (!custody_.frozen(pid) && was_stopped_before(pid))
      throw Failure("the ferryd that had stopped this program is no more");
    return {};
  } catch (const std::exception& failure) {
    return {EIO, failure.what(), ""};
  }
}

bool Daemon::was_stopped_before(pid_t pid) {
  await_recovery();
  std::lock_guard lock(mutex_);
  return std::any_of(formers_.begin(), formers_.end(), [&](const auto& entry) {
    return entry.second->has_process(pid) || is_below(pid, entry.second->root());
  });
}

agent::Done Daemon::dump_failed(pid_t pid) {
  if (const auto move = move_of_process(pid))
    move->dump_failed();
  else
    custody_.dump_failed(pid);
  return {};
}

agent::Done Daemon::claim(pid_t criu, const std::string& note) {
  await_recovery();
  custody_.claim(criu, note);
  return {};
}

agent::Done Daemon::restore_failed(pid_t criu, const std::string& note) {
  custody_.restore_failed(criu, note);
  return {};
}

agent::Done Daemon::restored(const agent::Restored& process) {
  custody_.restored(process.pid, process.note);
  return {};
}

agent::Done Daemon::action(const agent::Action& action) {
  if (action.move_id == 0) return {};  // another's CRIU
  await_recovery();
  if (const auto move = under_way(action.move_id)) {
    return {move->action(action.name, action.pid), "", ""};
  }
  if (action.name == "post-restore") {
    return {answer_of_former(action.move_id) == Answer::kCommitted ? 0 : 1, "", ""};
  }
  if (action.name == "network-unlock") return join_network_again(action.pid);
  if (action.name != "post-dump") return {};
  const auto recovered =
      SourceDecision::recovered(host_.decisions->decision(action.move_id, Side::kSource));
  if (!recovered.decided()) return {EAGAIN, "", ""};
  return {recovered.committed() ? 0 : 1, "", ""};
}

// A former ferryd has called the hook's hold for it, which may have ended after this one's
// activate.
agent::Done Daemon::join_network_again(pid_t root) {
  try {
    host_.units->join_network_again(root);
  } catch (const Failure& failure) {
    return {1, failure.what(), ""};
  }
  return {};
}

// A move's id is no secret: the number of CRIU's image folder, which every user sees.
bool Daemon::is_of_move(pid_t pid, std::uint64_t move_id) {
  const auto move = under_way(move_id);
  return !move || move->has_process(pid);
}

WakeUp Daemon::awake(pid_t pid, const agent::Awake& awake) {
  WakeUp answer = decide(pid, awake);
  if (answer.resume) host_.whereabouts->arrived(pid, answer.resume->contexts);
  return answer;
}

WakeUp Daemon::decide(pid_t pid, const agent::Awake& awake) {
  const pid_t inner = innermost_pid(pid).value_or(pid);
  WakeUp answer;
  if (!is_of_move(pid, awake.move_id)) {
    answer.retry_ms = 1000;
    warn_of(pid, "process {} asks for the sockets of move {:016x}, which is not its own", pid,
            awake.move_id);
  } else if (const auto move = under_way(awake.move_id)) {
    answer.resume = move->wake(inner);
  } else {
    await_recovery();
    if (auto decided = custody_.awake(pid, awake.move_id)) return std::move(*decided);
    answer.retry_ms = 1000;
    warn_of(pid, "process {} woke up from move {:016x}, which this ferryd does not know", pid,
            awake.move_id);
  }
  return answer;
}

void Daemon::resumed(pid_t pid, const agent::Resumed& resumed) {
  if (!is_of_move(pid, resumed.move_id)) return;
  const pid_t inner = innermost_pid(pid).value_or(pid);
  if (resumed.error != 0) {
    warn_of(pid, "process {} cannot use its sockets: {}", pid, error_text(resumed.error));
  }
  if (const auto move = under_way(resumed.move_id)) return move->resumed(inner, resumed);
  custody_.resumed(pid, resumed.move_id);
}

void Daemon::peers_know(pid_t pid, const agent::PeersKnow& peers) {
  if (!is_of_move(pid, peers.move_id)) return;
  const auto arriving = arrival(peers.move_id);
  if (arriving) arriving->peers_know(innermost_pid(pid).value_or(pid), peers);
}

void Daemon::registered(pid_t pid) {
  custody_.registered(pid);
  // It may be one that a former ferryd has given its sockets, or has not taken them from.
  std::vector<std::shared_ptr<Arrival>> arrivals;
  std::vector<std::shared_ptr<FormerMove>> formers;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, arrival] : arrivals_) arrivals.push_back(arrival);
    for (const auto& [id, former] : formers_) formers.push_back(former);
  }
  const pid_t inner = innermost_pid(pid).value_or(pid);
  for (const auto& arrival : arrivals) {
    if (arrival->has_process(pid)) arrival->registered(inner);
  }
  for (const auto& former : formers) {
    if (former->has_process(pid)) former->resumed(inner, {});
  }
}

void Daemon::locate(pid_t pid, const agent::Locate& question) {
  host_.whereabouts->locate(pid, question);
}

// --- housekeeping

void Daemon::keep_house() {
  std::unique_lock lock(mutex_);
  while (!host_.stopping) {
    ended_.wait_for(lock, milliseconds(200));
    // Destroyed without the lock: destructors wait for threads.
    std::vector<std::shared_ptr<void>> over;
    const auto collect = [&](auto& map, auto is_over) {
      for (auto entry = map.begin(); entry != map.end();) {
        if (is_over(*entry->second)) {
          over.push_back(entry->second);
          entry = map.erase(entry);
        } else {
          ++entry;
        }
      }
    };
    collect(moves_, [](const Move& move) { return move.is_over() && !move.group().undecided(); });
    collect(arrivals_, [](const Arrival& arrival) { return arrival.is_over(); });
    std::erase_if(groups_, [](const auto& entry) { return entry.second.expired(); });
    collect(formers_, [](const FormerMove& former) { return former.is_over(); });
    lock.unlock();
    over.clear();
    reap_orphans();
    keep_arrivals();
    forget_ended();
    custody_.keep_house();
    podman_.keep_house();
    lock.lock();
  }
}

void Daemon::keep_arrivals() {
  std::vector<std::shared_ptr<Arrival>> arrivals;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, arrival] : arrivals_) arrivals.push_back(arrival);
  }
  for (const auto& arrival : arrivals) arrival->keep_house();
}

// What has arrived here and is over is forgotten when its source cannot ask for the commit any
// more: it has forgotten the move as well.
void Daemon::forget_ended() {
  const auto now = std::chrono::steady_clock::now();
  if (now - asked_ < kAskEvery) return;
  asked_ = now;
  std::set<std::string> silent;
  for (const auto& [move_id, source] : host_.decisions->ended_arrivals()) {
    if (host_.stopping) return;
    if (silent.contains(source)) continue;
    try {
      Peer peer = Peer::recorded(source, host_.credentials);
      if (ask_decision(peer, move_id, milliseconds(500)) == Answer::kAborted) {
        host_.decisions->forget(move_id, Side::kDestination);
      }
    } catch (const Failure&) {
      silent.insert(source);  // its record may be needed still
    }
  }
}

}  // namespace ferry::host
