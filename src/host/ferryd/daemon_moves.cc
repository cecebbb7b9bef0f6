#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/failure.h"
#include "base/net.h"
#include "ferry.pb.h"
#include "host/checkpoint/find/ferryd_hosts.h"
#include "host/checkpoint/find/named.h"
#include "host/checkpoint/find/programs_here.h"
#include "host/ferryd/daemon.h"
#include "host/move/several/local_move_part.h"
#include "host/move/several/part_message.h"
#include "host/move/several/remote_move_part.h"
#include "host/peers/peer.h"
#include "host/peers/this_host.h"

// The part of Daemon that leads moves of programs of several hosts.
namespace ferry::host {
namespace {

constexpr std::chrono::seconds kNameTime{10};  // for a host to say who it is

}  // namespace

std::unique_ptr<LocalMovePart> Daemon::move_part(const v1::MovePartStep& look,
                                                 Move::Progress progress) {
  const v1::MoveRequest& request = look.request();
  const MoveOptions options = options_of(request);
  auto programs = find_units(0, {request.programs().begin(), request.programs().end()}, options);
  if (look.is_job()) {
    std::erase_if(programs, [](const MoveGroup::Program& program) {
      return program.processes.empty() && program.unit->needs_criu();
    });
  }
  need_rdma(programs);
  for (const auto& program : programs) {
    if (!program.unit->is_checkpointed()) continue;
    throw Failure(fmt::format("'{}' is a container of {}'s, which moves alone, from its own host",
                              program.unit->name(), program.unit->kind()));
  }
  return std::make_unique<LocalMovePart>(host_.name, departures_, 0, std::move(programs),
                                         request.to(), options, std::move(progress));
}

// It may have several names and addresses.
bool Daemon::is_this_host(const std::string& name) const {
  if (name == host_.name || name == split_host_port(host_.address, kFerrydPort).first) return true;
  try {
    v1::ProbeReply reply;
    Peer(name, host_.credentials).call(v1::ProbeRequest(), &reply, kNameTime);
    return reply.host() == host_.name;
  } catch (const Failure&) {
    return false;  // it is found to be silent later
  }
}

std::vector<HostAnswer> Daemon::programs_of_hosts(const v1::MoveRequest& request,
                                                  std::set<std::string>* silent) {
  FerrydHosts hosts(
      host_, [this](const Question& question) { return programs_here(control_, units_, question); },
      carrier_, directory_, {request.from().begin(), request.from().end()});
  const bool with_here =
      request.from().empty() ||
      std::any_of(request.from().begin(), request.from().end(),
                  [this](const std::string& name) { return is_this_host(name); });
  std::vector<HostAnswer> found;
  if (request.job().empty()) {
    for (const auto& program : request.programs()) add_named(hosts, program, with_here, &found);
    return found;
  }
  const auto user = request.has_user() ? std::optional<uid_t>(request.user()) : std::nullopt;
  found = find_closure(hosts, {request.job(), user, {}, /*with_peers=*/false});
  *silent = hosts.silent();
  v1::ProbeReply destination;
  Peer(request.to(), host_.credentials).call(v1::ProbeRequest(), &destination, kNameTime);
  std::erase_if(found, [&](const HostAnswer& answer) {
    return answer.host == destination.host() || (!with_here && answer.host == host_.name);
  });
  if (found.empty()) {
    throw Failure(
        fmt::format("no program of job '{}' is on another host than {}; see: ferry ps "
                    "--job",
                    printable(request.job()), printable(destination.host())));
  }
  return found;
}

SeveralMove::Parts Daemon::move_parts(uid_t user, const v1::MoveRequest& request,
                                      const Move::Progress& progress,
                                      std::set<std::string>* silent) {
  if (user != 0) {
    throw Failure(
        "moves of programs of several hosts are root's: another user's number may be "
        "somebody else's there");
  }
  await_recovery();
  need_other_hosts(host_);
  if (request.timeline()) throw Failure("--timeline is for programs that are all on this host");
  const auto found = programs_of_hosts(request, silent);
  std::size_t programs = 0;
  for (const auto& answer : found) programs += answer.programs.size();
  if (programs > 1 && !request.stdio().empty()) {
    throw Failure("--stdio is for the output of one program");
  }
  SeveralMove::Parts parts;
  for (const auto& answer : found) {
    v1::MovePartStep look;
    look.set_is_job(!request.job().empty());
    *look.mutable_request() = request;
    look.mutable_request()->clear_from();
    look.mutable_request()->clear_job();
    look.mutable_request()->clear_programs();
    for (const auto& program : answer.programs) {
      look.mutable_request()->add_programs(std::to_string(program.pid));
    }
    if (answer.ferryd.address.empty()) {
      parts.push_back(move_part(look, progress));
    } else {
      parts.push_back(
          std::make_unique<RemoteMovePart>(host_, answer.host, answer.ferryd, look, progress));
    }
  }
  return parts;
}

v1::GroupReport Daemon::move_several(uid_t user, const v1::MoveRequest& request,
                                     const Move::Progress& progress) {
  std::mutex one_at_a_time;
  const Move::Progress in_turn = [&](const v1::MoveProgress& message) {
    std::lock_guard lock(one_at_a_time);
    progress(message);
  };
  std::set<std::string> silent;
  SeveralMove move(host_, move_parts(user, request, in_turn, &silent));
  const SeveralMoves::Entry entry(several_moves_, move);
  auto report = move.run();
  report.mutable_silent()->Assign(silent.begin(), silent.end());
  return report;
}

v1::GroupPlan Daemon::plan_several(uid_t user, const v1::MoveRequest& request) {
  std::set<std::string> ignored;
  return SeveralMove(host_, move_parts(
                                user, request, [](const auto&) {}, &ignored))
      .plan();
}

}  // namespace ferry::host
