#include "host/move/source/departures.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "base/failure.h"
#include "base/log.h"
#include "ferry.pb.h"
#include "host/move/source/departed.h"
#include "host/move/source/together.h"
#include "host/peers/this_host.h"
#include "host/proc/process_tree.h"
#include "host/standin/slots.h"
#include "host/standin/stand_in_host.h"
#include "host/units/units.h"
#include "port/slot.h"

namespace ferry::host {
namespace {

template <typename Map>
auto values(const Map& map) {
  std::vector<typename Map::mapped_type> all;
  for (const auto& [id, value] : map) all.push_back(value);
  return all;
}

template <typename Map>
typename Map::mapped_type value(const Map& map, std::uint64_t id) {
  const auto found = map.find(id);
  return found == map.end() ? nullptr : found->second;
}

}  // namespace

std::shared_ptr<MoveGroup> Departures::group_of(std::vector<MoveGroup::Program> programs,
                                                const std::string& to,
                                                const MoveOptions& options) const {
  return std::make_shared<MoveGroup>(side_.decisions, side_.host.limits.standstill,
                                     side_.host.stopping, side_.host.credentials,
                                     std::move(programs), to, options.others);
}

Departures::Moves Departures::begin(uid_t user, std::vector<MoveGroup::Program> programs,
                                    const std::string& to, const MoveOptions& options) {
  Moves moves;
  {
    std::lock_guard lock(mutex_);
    for (const auto& program : programs) {
      for (const auto& [id, other] : moves_) {
        // One that is given up may be frozen yet.
        if (other->unit().root() == program.unit->root() && !other->is_over() &&
            !other->group().committed()) {
          throw Failure(fmt::format("'{}' is being moved already, to {}; wait until that has ended",
                                    program.unit->name(), other->group().peer().name()));
        }
      }
    }
    const auto together = group_of(std::move(programs), to, options);
    for (std::size_t i = 0; i < together->programs().size(); ++i) {
      moves.push_back(std::make_shared<Move>(side_, together, i, user, options));
      moves_.emplace(moves.back()->move_id(), moves.back());
    }
  }
  for (const auto& move : moves) move->tell_begin();
  return moves;
}

// Of these, the moves that are over.
void Departures::forget(const Moves& moves) {
  std::lock_guard lock(mutex_);
  for (const auto& move : moves) {
    if (move->is_over()) moves_.erase(move->move_id());
  }
}

v1::GroupReport Departures::run(const Moves& moves, const Move::Progress& progress) {
  try {
    return move_together(side_.host.name, moves, progress);
  } catch (const std::exception&) {
    forget(moves);
    throw;
  }
}

double Departures::checkpoint(const Moves& moves, const Cut& cut) {
  const MoveGroup& group = moves.front()->group();
  try {
    run_together(moves, {});
    if (!cut.is_taken()) {
      throw Failure(
          fmt::format("no checkpoint of {}: {}", names_of(group.programs()), group.failure()));
    }
  } catch (const std::exception&) {
    forget(moves);
    throw;
  }
  forget(moves);
  return cut.ends_programs() ? 0 : standstill_of(moves);
}

Weight Departures::weigh(uid_t user, std::vector<MoveGroup::Program> programs,
                         const std::string& to, const MoveOptions& options) const {
  return Move(side_, group_of(std::move(programs), to, options), 0, user, options).weight();
}

v1::GroupPlan Departures::plan(uid_t user, std::vector<MoveGroup::Program> programs,
                               const std::string& to, const MoveOptions& options) const {
  const auto group = group_of(std::move(programs), to, options);
  v1::GroupPlan plan;
  plan.set_from(side_.host.name);
  plan.set_to(group->peer().name());
  std::string failures;
  for (std::size_t i = 0; i < group->programs().size(); ++i) {
    try {
      *plan.add_programs() = Move(side_, group, i, user, options).plan();
    } catch (const Failure& failure) {
      failures += fmt::format("{}'{}' would not be moved: {}", failures.empty() ? "" : "; ",
                              group->programs()[i].unit->name(), failure.what());
    }
  }
  if (!failures.empty()) throw Failure(failures);
  return plan;
}

void Departures::take_up(std::uint64_t move_id, const Journal::Entry& entry,
                         std::unique_ptr<StoppedTree> tree) {
  auto former = std::make_shared<FormerMove>(side_, move_id, entry, std::move(tree));
  std::lock_guard lock(mutex_);
  formers_[move_id] = std::move(former);
}

void Departures::keep_origins(std::uint64_t move_id, const Journal::Entry& entry) const {
  const Held& held = *entry.held;
  const std::shared_ptr<void> network = side_.departed.hold_network(held.instance);
  for (const auto& [origin, place] : entry.origins) {
    rnic::Slot slot;
    slot.local = slot.origin = origin;
    slot.slot = port::slot_of_udp_port(origin.udp_port);
    slot.epoch = place.epoch;
    side_.directory.left(place);
    std::string problem = reopen_slots(held.netns, {&slot});
    try {
      if (problem.empty()) {
        const StandInId id = side_.stand_ins.add(slot);
        side_.stand_ins.committed(id, place.location,
                                  port::slot_of_udp_port(place.location.udp_port), place.epoch);
        side_.departed.keep_origin(move_id, id, place, network);
        continue;
      }
    } catch (const Failure& failure) {
      problem = failure.what();
      ::close(slot.descriptor);
    }
    log::warn("the slot that '{}' was opened in is given up: {}", held.program, problem);
    side_.decisions.freed(move_id, origin);
  }
}

std::shared_ptr<Move> Departures::find(std::uint64_t move_id) const {
  std::lock_guard lock(mutex_);
  return value(moves_, move_id);
}

std::shared_ptr<FormerMove> Departures::former(std::uint64_t move_id) const {
  std::lock_guard lock(mutex_);
  return value(formers_, move_id);
}

std::shared_ptr<Move> Departures::move_of_root(pid_t root) const {
  std::lock_guard lock(mutex_);
  for (const auto& [id, move] : moves_) {
    if (move->unit().root() == root && move->group().undecided()) return move;
  }
  return nullptr;
}

std::shared_ptr<Move> Departures::move_of_process(pid_t pid) const {
  std::lock_guard lock(mutex_);
  for (const auto& [id, move] : moves_) {
    if (move->group().undecided() &&
        (move->has_process(pid) || is_below(pid, move->unit().root()))) {
      return move;
    }
  }
  return nullptr;
}

bool Departures::was_stopped_before(pid_t pid) const {
  std::lock_guard lock(mutex_);
  return std::any_of(formers_.begin(), formers_.end(), [&](const auto& entry) {
    return entry.second->has_process(pid) || is_below(pid, entry.second->root());
  });
}

void Departures::registered(pid_t pid) const {
  const pid_t inner = innermost_pid(pid).value_or(pid);
  for (const auto& former : formers()) {
    if (former->has_process(pid)) former->resumed(inner, {});
  }
}

std::vector<std::shared_ptr<Move>> Departures::moves() const {
  std::lock_guard lock(mutex_);
  return values(moves_);
}

std::vector<std::shared_ptr<FormerMove>> Departures::formers() const {
  std::lock_guard lock(mutex_);
  return values(formers_);
}

void Departures::keep_house() {
  // Destroyed without the lock: destructors wait for threads.
  std::vector<std::shared_ptr<void>> over;
  std::lock_guard lock(mutex_);
  const auto forget = [&](auto& map, auto is_over) {
    std::erase_if(map, [&](const auto& entry) {
      if (is_over(*entry.second)) over.push_back(entry.second);
      return is_over(*entry.second);
    });
  };
  forget(moves_, [](const Move& move) { return move.is_over() && !move.group().undecided(); });
  forget(formers_, [](const FormerMove& former) { return former.is_over(); });
}

}  // namespace ferry::host
