#include <fmt/core.h>

#include <filesystem>

#include "base/failure.h"
#include "ferry.pb.h"
#include "host/checkpoint/own_folder.h"
#include "host/checkpoint/restart.h"
#include "host/checkpoint/take.h"
#include "host/ferryd/daemon.h"
#include "host/peers/this_host.h"
#include "host/units/obstacles.h"
#include "store/store.h"

// The part of Daemon that takes checkpoints, and restarts programs from them.
namespace ferry::host {
namespace {

// An image says as whom its processes run, and ferryd writes as root.
void need_root(uid_t user) {
  if (user == 0) return;
  throw Failure("checkpoints and restarts are root's: an image says as whom its program goes on");
}

// Whether one that cannot be read is later than the others nobody knows.
std::string latest(const store::Store& store, const std::string& directory) {
  std::string id;
  for (const auto& entry : store.list()) {
    if (entry.manifest) {
      id = entry.id;
    } else if (!entry.is_partial) {
      throw Failure(fmt::format(
          "{}; which checkpoint is the latest is not known: give one with --checkpoint, or delete "
          "that one: ferry checkpoints {} rm {}",
          entry.problem, printable(directory), entry.id));
    }
  }
  if (id.empty()) throw Failure(fmt::format("no complete checkpoint in {}", printable(directory)));
  return id;
}

}  // namespace

v1::CheckpointReport Daemon::checkpoint(uid_t user, const v1::CheckpointRequest& request) {
  need_root(user);
  auto programs =
      programs_to_move(user, {request.programs().begin(), request.programs().end()}, {});
  for (const auto& program : programs) {
    if (program.unit->netns().empty() && !program.unit->is_checkpointed()) continue;
    throw Failure(fmt::format(
        "'{}' is a container of {}'s: only programs without a container have checkpoints",
        program.unit->name(), program.unit->kind()));
  }
  auto own = request;
  own.set_directory(need_own_folder(request.directory()));
  return take_checkpoint(host_, departures_, user, std::move(programs), own);
}

v1::RestartReport Daemon::restart(uid_t user, const v1::RestartRequest& request) {
  need_root(user);
  await_recovery();
  need_other_hosts(host_);
  const std::string directory = need_own_folder(request.directory());
  const store::Store store(directory);
  const std::string id =
      request.checkpoint().empty() ? latest(store, directory) : request.checkpoint();
  const std::string folder = directory + "/" + id;
  if (store::is_id(id) && std::filesystem::is_directory(folder)) need_own_contents(folder);
  const store::Checkpoint checkpoint = store.open(id);
  std::vector<Facts> programs;
  for (const auto& program : checkpoint.manifest().programs) {
    programs.push_back(parse_facts(program.facts, program.name));
  }
  for (auto& facts : programs) {
    if (const auto running = what_runs(facts, arrivals_); !running.empty()) {
      throw Failure(fmt::format("'{}' still runs here, as {}: end it before it is restarted",
                                printable(facts.check.program()), running));
    }
    if (facts.check.version() != host_.version) {
      throw Failure(fmt::format(
          "checkpoint {} was made by Ferry {}, and {} has Ferry {}: restart it with that version",
          id, printable(facts.check.version()), host_.name, host_.version));
    }
    facts.check.set_host("checkpoint " + id);
    v1::CheckReply ignored;
    check(facts.check, {}, &ignored);
    const auto missing = missing_files({facts.check.files().begin(), facts.check.files().end()});
    if (!missing.empty()) {
      throw Failure(missing_file(host_.name, missing.front(), facts.check.program()));
    }
  }
  return restart_programs(host_, arrivals_, checkpoint, programs);
}

}  // namespace ferry::host
