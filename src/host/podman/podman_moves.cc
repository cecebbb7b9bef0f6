#include "host/podman/podman_moves.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/failure.h"
#include "base/log.h"
#include "ferry.pb.h"
#include "host/move/settle.h"
#include "host/peers/peer.h"
#include "host/proc/process_tree.h"
#include "host/units/unit.h"

namespace ferry::host {
namespace {

constexpr std::chrono::seconds kAskEvery{1};

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

PodmanMoves::PodmanMoves(const ThisHost& host, ControlServer& control, DecisionLog& decisions,
                         KeptPeers& peers, const ImageRoom& room, ImageReceiver* images,
                         Custody& custody, PodmanArrival::Taken taken)
    : host_(host),
      control_(control),
      decisions_(decisions),
      peers_(peers),
      room_(room),
      images_(images),
      custody_(custody),
      taken_(std::move(taken)),
      podman_(host.podman) {}

// --- the ferry command

std::optional<PodmanContainer> PodmanMoves::find(const std::string& name,
                                                 const std::string& runtime) const {
  const bool is_podmans = runtime == "podman";
  if (!is_podmans && (!runtime.empty() || !podman_.is_installed())) return std::nullopt;
  if (!is_podmans && is_number(name)) {
    const std::string id = Podman::container_of(std::stoi("0" + name.substr(0, 9)));
    return id.empty() ? std::nullopt : podman_.find(id);
  }
  try {
    if (auto found = podman_.find(name)) return found;
  } catch (const Failure& failure) {
    // A podman that nobody uses may fail.
    if (is_podmans) throw;
    log::debug("{}", failure.what());
  }
  if (is_podmans) {
    throw Failure(fmt::format("podman has no container '{}' on {}", name, host_.name));
  }
  std::set<std::string> ids;  // empty: outside of podman's containers
  for (const auto& process : control_.processes()) {
    if (program_name(process.pid) == name.substr(0, 15))
      ids.insert(Podman::container_of(process.pid));
  }
  if (ids.size() != 1 || ids.begin()->empty()) return std::nullopt;
  return podman_.find(*ids.begin());
}

v1::GroupReport PodmanMoves::move(uid_t user, PodmanContainer container, const std::string& to,
                                  bool force, const PodmanMove::Progress& progress) {
  need_owner(user, container.name, container.pid);
  std::shared_ptr<PodmanMove> move;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, other] : moves_) {
      if (other->id() != container.id || other->is_over()) continue;
      throw Failure(fmt::format("'{}' is being moved already, to {}; wait until that has ended",
                                container.name, other->to()));
    }
    move = std::make_shared<PodmanMove>(host_, control_, decisions_, custody_, podman_,
                                        std::move(container), to);
    moves_.emplace(move->move_id(), move);
  }
  try {
    auto report = move->run(force, progress);
    log::info("'{}' moved to {}: blackout {:.1f} ms", move->name(), to, report.blackout_ms());
    return report;
  } catch (const Failure& failure) {
    log::info("{}", failure.what());
    throw;
  }
}

void PodmanMoves::ps(uid_t user, v1::PsReply* reply) const {
  if (user != 0) return;  // it cannot be seen whose a stopped container is
  std::lock_guard lock(mutex_);
  const auto add = [&](const auto& move, const char* state) {
    auto* program = reply->add_programs();
    program->set_name(move.name());
    program->set_container(move.id().substr(0, Podman::kShortId));
    program->set_state(state);
    program->set_move_id(move.move_id());
  };
  for (const auto& [id, move] : moves_) {
    if (!move->is_over()) add(*move, move->in_doubt() ? "in doubt" : "moving");
  }
  for (const auto& [id, arrival] : arrivals_) {
    if (!arrival->is_over()) add(*arrival, arrival->in_doubt() ? "in doubt" : "arriving");
  }
}

bool PodmanMoves::resolve(uid_t user, std::uint64_t move_id, bool commit) {
  const auto move = leaving(move_id);
  const auto arrival = arriving(move_id);
  const bool in_doubt = (move && move->in_doubt()) || (arrival && arrival->in_doubt());
  if (!in_doubt) return false;
  if (user != 0) {
    throw Failure(
        fmt::format("only root may resolve move {:016x}, of a container of podman's", move_id));
  }
  if (commit) {
    throw Failure(
        "a container of podman's goes on at its destination when its source has said so, and not "
        "otherwise: start its source's ferryd, or give it up: ferry resolve --abort");
  }
  if (move) move->resolve_abort();
  if (arrival && arrival->abort() != Answer::kAborted) {
    throw Failure(fmt::format("'{}' cannot be removed yet; see: ferry ps", arrival->name()));
  }
  return true;
}

// --- other ferryds

// Failures do not name this host: the asking ferryd puts its name before them.
void PodmanMoves::check(const v1::CheckRequest& request) const {
  const auto& container = request.podman();
  await_clear(container.id(), container.name());
  if (const auto problem = podman_.unusable(); !problem.empty()) throw Failure(problem);
  for (const auto& name : {container.name(), container.id()}) {
    if (const auto other = podman_.find(name)) {
      throw Failure(fmt::format("there is a container '{}' already ({}); remove it: podman rm {}",
                                other->name, other->status, other->name));
    }
  }
  if (!podman_.has_image(container.image())) {
    throw Failure(
        fmt::format("there is no image {} with the id {}; take it there: podman save {} | "
                    "ssh {} podman load",
                    container.image_name(), container.image().substr(0, Podman::kShortId),
                    container.image_name(), host_.name));
  }
  for (const auto& network : container.networks()) {
    if (!podman_.has_network(network)) {
      throw Failure(
          fmt::format("there is no network '{}'; make it: podman network create", network));
    }
  }
  if (!container.netns().empty() && !exists(container.netns())) {
    throw Failure(fmt::format("there is no network namespace {}", container.netns()));
  }
  for (const auto& volume : container.volumes()) {
    if (podman_.has_volume(volume)) {
      throw Failure(fmt::format("there is a volume '{}' already; remove it: podman volume rm {}",
                                volume, volume));
    }
  }
  for (const auto& source : container.sources()) {
    if (!exists(source)) {
      throw Failure(fmt::format("there is no {}, which '{}' mounts", source, container.name()));
    }
  }
  const std::uint64_t needed = request.resident_bytes() + kHeadroom;
  if (const auto free = podman_.free_disk(); free < needed) {
    throw Failure(fmt::format("not enough disk for '{}': {} MiB needed, {} MiB free",
                              container.name(), needed >> 20, free >> 20));
  }
}

// Waits until arrivals at a former ferryd are removed, and so are in nobody's way.
void PodmanMoves::await_clear(const std::string& id, const std::string& name) const {
  std::vector<std::shared_ptr<PodmanArrival>> same;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [move_id, arrival] : arrivals_) {
      if (arrival->id() == id || arrival->name() == name) same.push_back(arrival);
    }
  }
  for (const auto& arrival : same) arrival->await_clear();
}

ImageToken PodmanMoves::prepare(const v1::PrepareRequest& request, const std::string& from) {
  if (request.podman().id().empty()) throw Failure("malformed request");
  std::lock_guard lock(mutex_);
  for (const auto& [id, other] : arrivals_) {
    const bool same = id == request.move_id() || other->id() == request.podman().id() ||
                      other->name() == request.podman().name();
    if (same && !other->is_over()) {
      throw Failure(fmt::format("'{}' arrives on {} already", other->name(), host_.name));
    }
  }
  const auto arrival = std::make_shared<PodmanArrival>(host_, decisions_, room_, images_, custody_,
                                                       podman_, taken_, request, from);
  arrivals_[request.move_id()] = arrival;
  return arrival->token();
}

std::optional<std::uint64_t> PodmanMoves::restore(std::uint64_t move_id,
                                                  std::chrono::milliseconds limit,
                                                  const std::string& from) {
  const auto arrival = arriving_from(move_id, from);
  return arrival ? std::optional(arrival->restore(limit)) : std::nullopt;
}

std::optional<Answer> PodmanMoves::abort(std::uint64_t move_id, const std::string& from) {
  const auto arrival = arriving_from(move_id, from);
  return arrival ? std::optional(arrival->abort()) : std::nullopt;
}

std::optional<Answer> PodmanMoves::decision(std::uint64_t move_id) const {
  const auto move = leaving(move_id);
  return move ? std::optional(move->answer()) : std::nullopt;
}

std::shared_ptr<PodmanMove> PodmanMoves::leaving(std::uint64_t move_id) const {
  std::lock_guard lock(mutex_);
  const auto found = moves_.find(move_id);
  return found == moves_.end() ? nullptr : found->second;
}

std::shared_ptr<PodmanArrival> PodmanMoves::arriving(std::uint64_t move_id) const {
  std::lock_guard lock(mutex_);
  const auto found = arrivals_.find(move_id);
  return found == arrivals_.end() ? nullptr : found->second;
}

std::shared_ptr<PodmanArrival> PodmanMoves::arriving_from(std::uint64_t move_id,
                                                          const std::string& from) const {
  auto found = arriving(move_id);
  if (found) need_source(found->from(), from);
  return found;
}

// --- former ferryds, and housekeeping

void PodmanMoves::recover(std::uint64_t move_id, Side side, const Journal::Entry& entry) {
  std::lock_guard lock(mutex_);
  if (side == Side::kSource) {
    moves_[move_id] = std::make_shared<PodmanMove>(host_, control_, decisions_, custody_, podman_,
                                                   move_id, entry);
  } else if (entry.record) {
    decisions_.note(Journal::podman_is_clear(move_id, side));
  } else {
    arrivals_[move_id] = std::make_shared<PodmanArrival>(
        host_, decisions_, room_, images_, custody_, podman_, taken_, move_id, *entry.podman);
  }
}

void PodmanMoves::keep_house() {
  std::vector<std::shared_ptr<void>> over;  // destroyed without the lock
  std::vector<std::shared_ptr<PodmanArrival>> arrivals;
  {
    std::lock_guard lock(mutex_);
    const auto collect = [&](auto& map) {
      std::erase_if(map, [&](const auto& entry) {
        if (entry.second->is_over()) over.push_back(entry.second);
        return entry.second->is_over();
      });
    };
    collect(moves_);
    collect(arrivals_);
    for (const auto& [id, arrival] : arrivals_) arrivals.push_back(arrival);
  }
  for (const auto& arrival : arrivals) arrival->look();
  const auto now = std::chrono::steady_clock::now();
  if (now - asked_ < kAskEvery) return;
  asked_ = now;
  for (const auto& arrival : arrivals) {
    if (arrival->waits_long()) ask_source(*arrival);
  }
}

void PodmanMoves::ask_source(PodmanArrival& arrival) const {
  try {
    const Answer answer = ask_decision(peers_, arrival.source(), arrival.from(), arrival.move_id(),
                                       std::chrono::seconds(1));
    if (answer == Answer::kAborted) arrival.abort();
    if (answer == Answer::kUnknown) arrival.source_is_at_work();
  } catch (const Failure& failure) {
    log::warn("'{}' waits for its source: {}", arrival.name(), failure.what());
    arrival.source_is_silent();
  }
}

}  // namespace ferry::host
