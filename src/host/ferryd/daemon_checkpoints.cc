#include <fmt/core.h>
#include <sys/stat.h>

#include "base/failure.h"
#include "ferry.pb.h"
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

// Throws Failure when somebody else than root could have written there.
void need_own(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    throw Failure(fmt::format("cannot read {}: {}", printable(path), error_text(errno)));
  }
  if (facts.st_uid == 0 && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0) return;
  throw Failure(fmt::format(
      "{} can be written by others than root, who could have changed what is restored there; chown "
      "root and chmod go-w what is yours",
      printable(path)));
}

std::string latest(const store::Store& store, const std::string& directory) {
  std::string id;
  for (const auto& entry : store.list()) {
    if (entry.manifest) id = entry.id;
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
  need_own(request.directory());
  return take_checkpoint(host_, departures_, user, std::move(programs), request);
}

v1::RestartReport Daemon::restart(uid_t user, const v1::RestartRequest& request) {
  need_root(user);
  await_recovery();
  need_other_hosts(host_);
  const store::Store store(request.directory());
  const std::string id =
      request.checkpoint().empty() ? latest(store, request.directory()) : request.checkpoint();
  const store::Checkpoint checkpoint = store.open(id);
  need_own(request.directory());
  need_own(request.directory() + "/" + id);
  std::vector<Facts> programs;
  for (const auto& program : checkpoint.manifest().programs) {
    programs.push_back(parse_facts(program.facts, program.name));
  }
  for (auto& facts : programs) {
    if (const auto running = what_runs(facts, arrivals_); !running.empty()) {
      throw Failure(fmt::format("'{}' still runs here, as {}: end it before it is restarted",
                                printable(facts.check.program()), running));
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
