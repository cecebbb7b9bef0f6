#include "migrate/daemon.h"

#include <fmt/format.h>
#include <net/if.h>
#include <spdlog/spdlog.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "migrate/directory.h"
#include "migrate/failure.h"
#include "migrate/process_tree.h"
#include "migrate/ps.h"
#include "migrate/settle.h"
#include "migrate/subprocess.h"
#include "migrate/whereabouts.h"

namespace ferry::migrate {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kImageFactor = 2;         // image in memory beside the restored pages
constexpr std::uint64_t kHeadroom = 64ull << 20;  // bytes

}  // namespace

std::uint64_t new_move_id() {
  std::uint64_t id = 0;
  while (id == 0) {
    if (::getrandom(&id, sizeof id, 0) != sizeof id) throw Failure("cannot get random bytes");
  }
  return id;
}

Daemon::Daemon(Host& host) : host_(host), housekeeper_([this] { keep_house(); }) {}

Daemon::~Daemon() {
  host_.stopping = true;
  {
    std::lock_guard lock(mutex_);
    ended_.notify_all();
  }
  housekeeper_.join();
}

// --- other ferryds

void Daemon::check(const v1::CheckRequest& request, const std::string& from) {
  if (!from.empty() && request.host() != from) {
    throw Failure(
        fmt::format("refused: it calls itself '{}', and its certificate is of {}; start its ferryd "
                    "with --host {}",
                    printable(request.host()), from, from));
  }
  if (request.version() != host_.version) {
    throw Failure(fmt::format("{} runs Ferry {}, {} runs Ferry {}; install the same on both",
                              host_.name, host_.version, request.host(), request.version()));
  }
  if (request.host() == host_.name) {
    throw Failure(fmt::format("'{}' is on {} already", request.program(), host_.name));
  }
  if (const std::string problem = host_.criu->unusable(); !problem.empty()) throw Failure(problem);
  const std::uint64_t needed =
      kImageFactor * (request.resident_bytes() + request.group_bytes()) + kHeadroom;
  if (const std::uint64_t free = host_.available(); needed > free) {
    throw Failure(fmt::format("not enough memory on {} for '{}'{}: {} MiB needed, {} MiB free",
                              host_.name, request.program(),
                              request.group_bytes() > 0 ? " and those that move with it" : "",
                              needed >> 20, free >> 20));
  }
  if (request.container()) {
    if (!host_.containers->has_hook()) {
      throw Failure(
          fmt::format("the ferryd of {} has no --network-hook, which containers need", host_.name));
    }
    if (!host_.containers->name_is_free(request.program())) {
      throw Failure(
          fmt::format("{} has a container '{}' of its own", host_.name, request.program()));
    }
    return;
  }
  for (const auto& netdev : request.netdevs()) {
    if (::if_nametoindex(netdev.c_str()) == 0) {
      throw Failure(fmt::format("{} has no network interface {}, which '{}' uses", host_.name,
                                netdev, request.program()));
    }
  }
}

std::shared_ptr<Arrival> Daemon::prepare(const v1::PrepareRequest& request,
                                         const std::string& from) {
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
          (!request.container_json().empty() && other->program() == request.program() &&
           !other->is_over() && !host_.containers->name_is_free(request.program()))) {
        throw Failure(fmt::format("'{}' arrives on {} already", request.program(), host_.name));
      }
    }
    const std::size_t programs = std::max(request.group().programs(), 1u);
    auto& known = groups_[request.has_group() ? request.group().id() : request.move_id()];
    group = known.lock();
    if (!group) known = group = std::make_shared<ArrivalGroup>(host_, programs, from);
    group->need(programs, from);
  }
  host_.directory->met(request.source(), from);
  auto arrival = std::make_shared<Arrival>(host_, std::move(group), request, from);
  std::lock_guard lock(mutex_);
  arrivals_.emplace(request.move_id(), arrival);
  return arrival;
}

std::shared_ptr<Arrival> Daemon::arrival(std::uint64_t move_id) {
  std::lock_guard lock(mutex_);
  const auto found = arrivals_.find(move_id);
  return found == arrivals_.end() ? nullptr : found->second;
}

std::shared_ptr<Arrival> Daemon::arrival_from(std::uint64_t move_id, const std::string& from) {
  auto found = arrival(move_id);
  if (found && found->from() != from) {
    throw Failure(fmt::format("refused: this is a move of {}, not of {}", found->from(), from));
  }
  return found;
}

Answer Daemon::commit(std::uint64_t move_id, const std::string& from, std::string* reason) {
  if (const auto found = arrival_from(move_id, from)) return found->commit(reason);
  // A ferryd that started anew knows nothing of it: what it had restored is gone.
  *reason = "the program is not there any more";
  return abort_former(move_id);
}

Answer Daemon::abort(std::uint64_t move_id, const std::string& from) {
  if (const auto found = arrival_from(move_id, from)) return found->abort("the source gave up");
  return abort_former(move_id);
}

// An arrival of a ferryd that is no more: unless it is committed it never will be.
Answer Daemon::abort_former(std::uint64_t move_id) {
  const auto record = host_.decisions->decision(move_id, Side::kDestination);
  if (!record) {
    report_failure([&] {
      host_.decisions->record(Side::kDestination, {Decision::kAborted, "", "", {move_id}});
    });
  }
  return DestinationDecision::recovered(record).answer();
}

Answer Daemon::decision(std::uint64_t move_id) {
  if (const auto move = find_move(move_id)) return move->group().answer();
  return SourceDecision::recovered(host_.decisions->decision(move_id, Side::kSource)).answer();
}

// --- the control protocol

std::shared_ptr<Move> Daemon::move_of_root(pid_t root) {
  std::lock_guard lock(mutex_);
  for (const auto& [id, move] : moves_) {
    if (move->unit().root == root && move->group().undecided()) return move;
  }
  return nullptr;
}

std::shared_ptr<Move> Daemon::move_of_process(pid_t pid) {
  std::lock_guard lock(mutex_);
  for (const auto& [id, move] : moves_) {
    if (move->group().undecided() && (move->has_process(pid) || is_below(pid, move->unit().root))) {
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

std::shared_ptr<Daemon::Foreign> Daemon::foreign_of(pid_t pid) {
  std::lock_guard lock(mutex_);
  for (const auto& [id, foreign] : foreign_) {
    if (foreign->tree->has_process(pid) || is_below(pid, foreign->root)) return foreign;
  }
  return nullptr;
}

agent::Done Daemon::pause_tree(pid_t root) {
  try {
    if (const auto move = move_of_root(root)) {
      move->pause_tree();
      return {};
    }
    return pause_foreign(root);
  } catch (const std::exception& failure) {
    return {EIO, failure.what()};
  }
}

agent::Done Daemon::pause_foreign(pid_t root) {
  const auto processes = ferry_processes(host_, root);
  if (processes.empty()) return {};
  auto foreign = std::make_shared<Foreign>();
  foreign->move_id = new_move_id();
  foreign->root = root;
  if (namespace_inode(root, "net") != namespace_inode(::getpid(), "net")) {
    foreign->exception = std::make_unique<LockException>(root);
  }
  foreign->tree = std::make_unique<StoppedTree>(*host_.control, *host_.stand_ins, foreign->move_id);
  {
    std::lock_guard lock(mutex_);
    foreign_.emplace(foreign->move_id, foreign);
  }
  try {
    foreign->tree->stop(processes, host_.limits.stop);
  } catch (const Failure&) {
    if (foreign->tree->all_back()) {
      std::lock_guard lock(mutex_);
      foreign_.erase(foreign->move_id);
    }
    throw;
  }
  spdlog::info("stopped the {} Ferry processes of process {} for a checkpoint", processes.size(),
               root);
  return {};
}

agent::Done Daemon::frozen(pid_t pid) {
  try {
    if (const auto move = move_of_process(pid))
      move->frozen();
    else if (const auto foreign = foreign_of(pid))
      foreign->tree->mark_frozen();
    return {};
  } catch (const std::exception& failure) {
    return {EIO, failure.what()};
  }
}

agent::Done Daemon::dump_failed(pid_t pid) {
  if (const auto move = move_of_process(pid))
    move->dump_failed();
  else if (const auto foreign = foreign_of(pid))
    foreign->tree->roll_back();
  return {};
}

agent::Done Daemon::action(const agent::Action& action) {
  if (action.move_id == 0) return {};  // another's CRIU
  if (const auto move = find_move(action.move_id)) return {move->action(action.name), ""};
  if (const auto arriving = arrival(action.move_id)) {
    return {arriving->action(action.name, action.pid), ""};
  }
  return action_of_former(action);
}

// Of a move that a ferryd that is no more has left behind.
agent::Done Daemon::action_of_former(const agent::Action& action) {
  Answer answer = Answer::kUnknown;
  if (action.name == "post-dump") {
    answer = settle_source(host_, action.move_id);
  } else if (action.name == "post-restore") {
    answer = abort_former(action.move_id);
  } else {
    return {};
  }
  if (answer == Answer::kUnknown) return {EAGAIN, ""};
  return {answer == Answer::kCommitted ? 0 : 1, ""};
}

// A move's id is no secret: the number of CRIU's image folder, which every user sees.
bool Daemon::is_of_move(pid_t pid, std::uint64_t move_id) {
  if (const auto arriving = arrival(move_id)) return arriving->has_process(pid);
  if (const auto move = find_move(move_id)) return move->has_process(pid);
  return true;
}

WakeUp Daemon::awake(pid_t pid, const agent::Awake& awake) {
  const pid_t inner = innermost_pid(pid).value_or(pid);
  WakeUp answer;
  if (!is_of_move(pid, awake.move_id)) {
    answer.retry_ms = 1000;
    spdlog::warn("process {} asks for the sockets of move {:016x}, which is not its own", pid,
                 awake.move_id);
  } else if (const auto arriving = arrival(awake.move_id)) {
    answer.resume = arriving->wake(inner);
  } else if (const auto move = find_move(awake.move_id)) {
    answer.resume = move->wake(inner);
  } else {
    std::shared_ptr<Foreign> foreign;
    {
      std::lock_guard lock(mutex_);
      const auto found = foreign_.find(awake.move_id);
      if (found != foreign_.end()) foreign = found->second;
    }
    if (foreign) {
      // It runs: its checkpoint is over, left it running, or was restored here.
      foreign->tree->roll_back();
      answer.resume = foreign->tree->wake(inner);
    } else {
      answer.retry_ms = 1000;
      spdlog::warn("process {} woke up from move {:016x}, which this ferryd does not know", pid,
                   awake.move_id);
    }
  }
  return answer;
}

void Daemon::resumed(pid_t pid, const agent::Resumed& resumed) {
  if (!is_of_move(pid, resumed.move_id)) return;
  const pid_t inner = innermost_pid(pid).value_or(pid);
  if (resumed.error != 0) {
    spdlog::error("process {} cannot use its sockets: {}", pid, error_text(resumed.error));
  }
  if (const auto arriving = arrival(resumed.move_id)) return arriving->resumed(inner, resumed);
  if (const auto move = find_move(resumed.move_id)) return move->resumed(inner);
  std::lock_guard lock(mutex_);
  const auto found = foreign_.find(resumed.move_id);
  if (found == foreign_.end()) return;
  found->second->tree->resumed(inner);
  if (found->second->tree->all_back()) foreign_.erase(found);
}

void Daemon::peers_know(pid_t pid, const agent::PeersKnow& peers) {
  if (!is_of_move(pid, peers.move_id)) return;
  const auto arriving = arrival(peers.move_id);
  if (arriving) arriving->peers_know(innermost_pid(pid).value_or(pid), peers);
}

void Daemon::registered(pid_t pid) {
  if (host_.whereabouts != nullptr) host_.whereabouts->registered(pid);
}

void Daemon::locate(pid_t pid, const agent::Locate& question) {
  if (host_.whereabouts != nullptr) host_.whereabouts->locate(pid, question);
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
    lock.unlock();
    over.clear();
    reap_orphans();
    ask_sources();
    lock.lock();
  }
}

// Arrivals that wait for long ask how their source has decided, or whether it still goes on.
void Daemon::ask_sources() {
  std::vector<std::shared_ptr<Arrival>> doubtful;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, arrival] : arrivals_) {
      if (arrival->waits_long()) doubtful.push_back(arrival);
    }
  }
  for (const auto& arrival : doubtful) {
    try {
      Peer source(arrival->source(), host_.credentials, arrival->from());
      v1::DecisionRequest request;
      v1::DecisionReply reply;
      request.set_move_id(arrival->move_id());
      source.call(&v1::Ferryd::Stub::Decision, request, &reply, seconds(1));
      std::string reason;
      if (reply.decision() == v1::DecisionReply::COMMITTED) arrival->commit(&reason);
      if (reply.decision() == v1::DecisionReply::ABORTED) arrival->abort("the source gave up");
      if (reply.decision() == v1::DecisionReply::UNDECIDED) arrival->source_is_at_work();
    } catch (const Failure& failure) {
      spdlog::warn("'{}' waits for its source: {}", arrival->program(), failure.what());
      arrival->source_is_silent();
    }
  }
}

}  // namespace ferry::migrate
