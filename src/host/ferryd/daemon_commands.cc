#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "base/failure.h"
#include "base/log.h"
#include "ferry.pb.h"
#include "host/detach/detachments.h"
#include "host/ferryd/daemon.h"
#include "host/ferryd/ps.h"
#include "host/move/settle.h"
#include "host/peers/peer.h"
#include "host/peers/peer_record.h"
#include "host/peers/this_host.h"
#include "host/proc/environment.h"
#include "host/proc/process_tree.h"
#include "host/units/units.h"
#include "precopy/tracker.h"

// The part of Daemon that the ferry command asks.
namespace ferry::host {

// Refuses what this kernel cannot do, and what cannot be done with a program whose runtime makes the checkpoint.
static void need_possible(const Unit& unit, std::size_t programs, const MoveOptions& options) {
  const bool must_copy_ahead =
      options.copy_ahead == MoveOptions::Ahead::kAlways || options.limits.max_blackout_ms > 0;
  if (must_copy_ahead && unit.needs_criu() && !precopy::can_track()) {
    throw Failure(fmt::format(
        "cannot copy the memory of '{}' ahead: this kernel does not tell which pages a program "
        "writes; use Linux 6.7 or later, or move it without --copy-ahead and --max-blackout",
        unit.name()));
  }
  if (!unit.needs_criu() && options.limits.rate > 0 && options.limits.max_blackout_ms > 0) {
    throw Failure(
        fmt::format("'{}' is a machine, whose blackout is known by how fast QEMU sends: move it "
                    "without --ahead-rate or without --max-blackout",
                    unit.name()));
  }
  if (!unit.is_checkpointed()) return;
  if (programs > 1) {
    throw Failure(
        fmt::format("'{}' is a container of {}'s, which moves alone", unit.name(), unit.kind()));
  }
  if (must_copy_ahead) {
    throw Failure(fmt::format("'{}' is a container of {}'s, whose memory cannot be copied ahead",
                              unit.name(), unit.kind()));
  }
}

// The units that the user means: on this host, the user's own, and no program twice. Throws Failure.
std::vector<MoveGroup::Program> Daemon::find_units(uid_t user,
                                                   const std::vector<std::string>& programs,
                                                   const MoveOptions& options) {
  await_recovery();
  if (host_.stopping) throw Failure("this ferryd is ending");
  need_other_hosts(host_);
  if (programs.empty()) throw Failure("no program is named");
  std::vector<MoveGroup::Program> group;
  for (const auto& program : programs) {
    Units::Found found;
    try {
      found = units_.find(control_, user, program, options.kind);
    } catch (const Failure& failure) {
      if (programs.size() == 1) throw;
      throw Failure(fmt::format(
          "{} (programs that move together are all on one host, or --from names their hosts)",
          failure.what()));
    }
    found.unit->need_mover(user);
    detachments_.need_attached(found.unit->root());
    found.unit->want(options.extras);
    need_possible(*found.unit, programs.size(), options);
    const pid_t root = found.unit->root();
    for (std::size_t other = 0; other < group.size(); ++other) {
      const pid_t other_root = group[other].unit->root();
      if (is_below(root, other_root) || is_below(other_root, root)) {
        throw Failure(fmt::format("'{}' and '{}' are of one program: name it once", programs[other],
                                  program));
      }
    }
    group.push_back({new_move_id(), std::move(found.unit), std::move(found.processes)});
  }
  return group;
}

// Checks that a move of these programs may begin, and gives their units. Throws Failure.
std::vector<MoveGroup::Program> Daemon::programs_to_move(uid_t user,
                                                         const std::vector<std::string>& programs,
                                                         const MoveOptions& options) {
  if (programs.size() > 1 && !options.extras.stdio.empty()) {
    throw Failure("--stdio is for the output of one program");
  }
  auto units = find_units(user, programs, options);
  need_rdma(units);
  return units;
}

void Daemon::need_rdma(const std::vector<MoveGroup::Program>& programs) const {
  for (const auto& [move_id, unit, processes] : programs) {
    if (processes.empty() && unit->needs_criu())
      throw Failure(unit->without_rdma(units_.in_words(*unit)));
  }
}

v1::GroupReport Daemon::move(uid_t user, const std::vector<std::string>& programs,
                             const std::string& to, const MoveOptions& options,
                             const Move::Progress& progress) {
  const auto moves =
      departures_.begin(user, programs_to_move(user, programs, options), to, options);
  return departures_.run(moves, progress);
}

v1::GroupPlan Daemon::plan(uid_t user, const std::vector<std::string>& programs,
                           const std::string& to, const MoveOptions& options) {
  return departures_.plan(user, programs_to_move(user, programs, options), to, options);
}

void Daemon::cancel(uid_t user, const v1::CancelRequest& request) {
  auto moves = departures_.moves();
  std::erase_if(moves, [](const auto& move) { return !move->group().undecided(); });
  std::vector<std::shared_ptr<Move>> found;
  for (const auto& program : request.programs()) {
    const auto known = found.size();
    std::copy_if(moves.begin(), moves.end(), std::back_inserter(found), [&](const auto& move) {
      const Unit& unit = move->unit();
      return unit.name() == program || std::to_string(unit.root()) == program;
    });
    if (found.size() == known) {
      throw Failure(fmt::format("no move of '{}' is under way on {}", program, host_.name));
    }
    if (found.size() > known + 1) {
      throw Failure(
          fmt::format("several programs '{}' are being moved; give its pid: ferry ps", program));
    }
  }
  for (const auto id : request.move_ids()) {
    if (user == 0 && several_moves_.give_up(id)) return;
    for (const auto& move : moves) {
      if (move->move_id() == id) found.push_back(move);
    }
  }
  if (!request.attempts().empty() && user != 0) {
    throw Failure("checkpoints and restarts are root's to give up");
  }
  for (const auto id : request.attempts()) attempts_.give_up(id);
  for (const auto& move : found) need_owner(user, move->unit().name(), move->unit().root());
  std::erase_if(found, [](const auto& move) { return move->give_up(); });
  if (found.empty()) return;
  Move& promised = *found.front();
  throw Failure(
      fmt::format("the move of '{}' is promised, and cannot be given up any more: see "
                  "ferry ps, here and on {}",
                  promised.unit().name(), promised.group().peer().name()));
}

v1::PsReply Daemon::ps(uid_t user) {
  v1::PsReply reply;
  reply.set_host(host_.name);
  reply.set_injected_losses(stand_ins_.injected_losses());
  const auto statuses = control_.statuses(std::chrono::seconds(2));
  for (const auto& process : control_.processes()) {
    auto* program = reply.add_programs();
    program->set_pid(process.pid);
    program->set_name(program_name(process.pid).value_or("?"));
    program->set_state("running");
    if (!is_owner(user, process.pid)) {
      program->set_state("another user's");
      continue;
    }
    if (const auto name = units_.name_of(process.pid)) {
      program->set_container(name->name);
      program->set_runtime(name->kind);
      program->set_container_id(name->id);
    }
    program->set_job(job_of(process.pid));
    if (is_halted(process.pid)) {
      program->set_state("stopped");  // it could not answer
      continue;
    }
    if (const auto status = statuses.find(process.pid); status != statuses.end()) {
      to_message(status->second, program);
    } else {
      program->set_state("does not answer");
    }
  }
  for (const auto& move : departures_.moves()) {
    const MoveGroup& group = move->group();
    if (!group.undecided() || !is_owner(user, move->unit().root())) continue;
    auto* program = reply.add_programs();
    program->set_pid(move->unit().root());
    program->set_name(move->unit().name());
    program->set_state(group.in_doubt() ? "in doubt" : "moving");
    program->set_move_id(move->move_id());
    if (!group.is_alone()) program->set_group(group.id());
  }
  for (const auto& former : departures_.formers()) {
    if (!former->in_doubt() || !is_owner(user, former->root())) continue;
    auto* program = reply.add_programs();
    program->set_pid(former->root());
    program->set_name(former->program());
    program->set_state("in doubt");
    program->set_move_id(former->move_id());
  }
  for (const auto& arrival : arrivals_.all()) {
    if (!arrival->is_held() || !is_owner(user, arrival->root())) continue;
    auto* program = reply.add_programs();
    program->set_pid(arrival->root());
    program->set_name(arrival->program());
    program->set_state(arrival->in_doubt() ? "in doubt" : "arriving");
    program->set_move_id(arrival->move_id());
    program->set_group(arrival->group());
  }
  return reply;
}

v1::HistoryReply Daemon::history(uid_t user, const v1::HistoryRequest& request) {
  await_recovery();
  v1::HistoryReply reply;
  reply.set_host(host_.name);
  auto moves = history_.moves();
  std::erase_if(moves, [&](const v1::PastMove& move) {
    return !may_know(user, move) ||
           (!request.program().empty() && move.program() != request.program());
  });
  const std::size_t limit = request.limit() == 0 ? moves.size() : request.limit();
  const std::size_t skipped = moves.size() - std::min(moves.size(), limit);
  for (std::size_t i = skipped; i < moves.size(); ++i) *reply.add_moves() = std::move(moves[i]);
  return reply;
}

void Daemon::resolve(uid_t user, std::uint64_t move_id, bool commit_it) {
  if (const auto move = departures_.find(move_id); move && move->group().in_doubt()) {
    for (const auto& program : move->group().programs()) {
      need_owner(user, program.unit->name(), program.unit->root());
    }
    if (commit_it) {
      throw Failure(
          "the move is committed here; if the program lives on at the destination, "
          "there is nothing to decide: end its frozen copy by hand");
    }
    move->group().resolve_abort();
    return;
  }
  if (const auto arriving = arrival(move_id); arriving && arriving->in_doubt()) {
    std::vector<std::shared_ptr<Arrival>> group{arriving};
    for (const auto& other : arrivals_.all()) {
      if (arriving->group() != 0 && other->group() == arriving->group()) group.push_back(other);
    }
    for (const auto& each : group) need_owner(user, each->program(), each->root());
    std::string reason;
    if (!commit_it) {
      arriving->abort(kOperatorDecided);
    } else if (arriving->commit_by_operator(&reason) == Answer::kAborted) {
      throw Failure(reason);
    }
    return;
  }
  const auto promise = former(move_id);
  if (!promise || !promise->in_doubt()) {
    throw Failure(fmt::format("no move {:016x} is in doubt on {}", move_id, host_.name));
  }
  if (user != 0) {
    throw Failure(fmt::format("only root may resolve move {:016x}, of a former ferryd", move_id));
  }
  if (commit_it) throw Failure("the move is committed here; decide it at its destination");
  const auto record = decisions_.find(move_id, Side::kSource);
  if (!record) return;
  // A destination that can be asked may have committed, and what it has not committed it gives up.
  Peer destination = Peer::recorded(record->peer, host_.credentials);
  std::string ignored;
  if (ask_to_abort(destination, move_id, &ignored) == Answer::kCommitted) {
    throw Failure(
        is_committed_there("'" + promise->program() + "'", parse_peer(record->peer).name));
  }
  decisions_.record(Side::kSource, {Decision::kAborted, record->program, "", record->moves});
  // The same for all programs of the group.
  for (const auto id : record->moves) {
    if (const auto other = former(id)) other->resolve_abort();
  }
}

std::shared_ptr<Detachment> Daemon::detach(uid_t user, const std::string& device) {
  await_recovery();
  if (host_.stopping) throw Failure("this ferryd is ending");
  return detachments_.begin(user, {device});
}

}  // namespace ferry::host
