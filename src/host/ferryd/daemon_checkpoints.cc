#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/failure.h"
#include "base/json_text.h"
#include "ferry.pb.h"
#include "host/checkpoint/facts.h"
#include "host/checkpoint/find/ferryd_hosts.h"
#include "host/checkpoint/find/find_message.h"
#include "host/checkpoint/find/programs_here.h"
#include "host/checkpoint/own_folder.h"
#include "host/checkpoint/restart/local_restart.h"
#include "host/checkpoint/restart/restart.h"
#include "host/checkpoint/take/cut_host.h"
#include "host/checkpoint/take/local_part.h"
#include "host/checkpoint/take/take.h"
#include "host/checkpoint/wait/wait.h"
#include "host/ferryd/daemon.h"
#include "host/peers/peer_record.h"
#include "host/peers/this_host.h"
#include "store/store.h"

// The part of Daemon that takes checkpoints, and restarts programs from them.
namespace ferry::host {
namespace {

// An image says as whom its processes run, and ferryd writes as root.
void need_root(uid_t user) {
  if (user == 0) return;
  throw Failure("checkpoints and restarts are root's: an image says as whom its program goes on");
}

// The programs of each host, by the name that the user has given it.
std::map<std::string, std::vector<std::string>> by_host(const v1::CheckpointRequest& request,
                                                        const std::string& here) {
  std::map<std::string, std::vector<std::string>> hosts;
  for (const auto& program : request.programs()) {
    const std::size_t at = program.rfind('@');
    const std::string host = at == std::string::npos ? here : program.substr(at + 1);
    if (host.empty() || at == 0) {
      throw Failure(fmt::format("'{}' is no program, nor PROGRAM@HOST", printable(program)));
    }
    hosts[host].push_back(program.substr(0, at));
  }
  return hosts;
}

}  // namespace

std::vector<MoveGroup::Program> Daemon::programs_to_store(
    uid_t user, const std::vector<std::string>& programs) {
  auto units = find_units(user, programs, {});
  for (const auto& program : units) {
    if (!program.unit->needs_criu()) {
      throw Failure(fmt::format("'{}' is a virtual machine, of which there are no checkpoints",
                                program.unit->name()));
    }
    if (!program.unit->is_checkpointed()) continue;
    throw Failure(
        fmt::format("'{}' is a container of {}'s, which makes checkpoints of it by itself: {} "
                    "container checkpoint",
                    program.unit->name(), program.unit->kind(), program.unit->kind()));
  }
  return units;
}

std::unique_ptr<LocalPart> Daemon::cut_part(const std::vector<std::string>& programs, bool stop,
                                            TellBytes tell) {
  return std::make_unique<LocalPart>(host_, departures_, control_, 0,
                                     programs_to_store(0, programs), stop, std::move(tell));
}

v1::FindReply Daemon::find(const v1::FindRequest& request) {
  await_recovery();
  v1::FindReply reply;
  reply.set_host(host_.name);
  reply.set_version(host_.version);
  for (const auto& each : programs_here(control_, units_, from_message(request))) {
    to_message(each, reply.add_programs());
  }
  return reply;
}

CutHost Daemon::cut_host_here(std::vector<std::string> programs) {
  return host::cut_host_here(host_, std::move(programs),
                             [this](const auto& names, bool stop, auto tell) {
                               return cut_part(names, stop, std::move(tell));
                             });
}

std::vector<CutHost> Daemon::named_hosts(const v1::CheckpointRequest& request) {
  std::vector<CutHost> hosts;
  for (auto& [host, programs] : by_host(request, host_.name)) {
    hosts.push_back(host == host_.name ? cut_host_here(programs)
                                       : cut_host_there(host_, host, programs));
  }
  return hosts;
}

std::vector<CutHost> Daemon::found_hosts(const v1::CheckpointRequest& request,
                                         std::set<std::string>* silent) {
  await_recovery();
  FerrydHosts asked(
      host_, [this](const Question& question) { return programs_here(control_, units_, question); },
      carrier_, directory_, {request.hosts().begin(), request.hosts().end()});
  const auto user = request.has_user() ? std::optional<uid_t>(request.user()) : std::nullopt;
  std::vector<CutHost> hosts;
  for (const auto& answer : find_closure(asked, {request.job(), user, request.connected_to()})) {
    std::vector<std::string> programs;
    for (const auto& program : answer.programs) programs.push_back(std::to_string(program.pid));
    const auto& [address, identity] = answer.ferryd;
    hosts.push_back(address.empty()
                        ? cut_host_here(std::move(programs))
                        : cut_host_there(host_, address, std::move(programs), identity));
  }
  *silent = asked.silent();
  return hosts;
}

v1::CheckpointReport Daemon::checkpoint(uid_t user, const v1::CheckpointRequest& request,
                                        Progress::Tell tell, std::function<bool()> is_awaited) {
  need_root(user);
  const int ways = (request.programs().empty() ? 0 : 1) + (request.job().empty() ? 0 : 1) +
                   (request.connected_to().empty() ? 0 : 1);
  if (ways == 0) throw Failure("no program is named, and no job");
  if (ways > 1) throw Failure("name programs, or a job, or what they are connected with");
  auto own = request;
  own.set_directory(need_own_folder(request.directory()));
  Attempt attempt(attempts_, host_, Attempt::Kind::kCheckpoint, std::move(tell),
                  std::move(is_awaited));
  attempt.progress().begin({"look", {}, {}});
  std::set<std::string> silent;
  auto hosts = request.programs().empty() ? found_hosts(request, &silent) : named_hosts(request);
  auto report = take_checkpoint(host_, std::move(hosts), own, content_keys_, attempt);
  report.mutable_silent()->Assign(silent.begin(), silent.end());
  return report;
}

std::unique_ptr<LocalRestart> Daemon::restart_part(const v1::RestartStep& check, TellBytes tell) {
  await_recovery();
  need_other_hosts(host_);
  const std::string folder = need_own_folder(check.directory());
  std::vector<PeerRecord> hosts;
  for (const auto& each : check.hosts()) hosts.push_back({each.ferryd(), each.host()});
  return std::make_unique<LocalRestart>(
      host_, arrivals_, directory_,
      [this](const v1::CheckRequest& request) { check_restart(request); },
      open_checkpoint(store::Store(folder), folder, check.id(), check.content_key()),
      std::vector<std::uint32_t>(check.programs().begin(), check.programs().end()), hosts,
      check.force(), std::move(tell));
}

void Daemon::check_restart(const v1::CheckRequest& request) {
  v1::CheckReply ignored;
  check(request, {}, &ignored);
}

std::string Daemon::what_runs(const v1::RestartStep& look) {
  await_recovery();
  for (const auto& text : look.facts()) {
    auto running = host::what_runs(host_, parse_facts(json_of(text), "a program"), arrivals_,
                                   directory_, look.force());
    if (!running.empty()) return running;
  }
  return {};
}

v1::RestartReport Daemon::restart(uid_t user, const v1::RestartRequest& request,
                                  Progress::Tell tell, std::function<bool()> is_awaited) {
  need_root(user);
  await_recovery();
  need_other_hosts(host_);
  const std::string directory = need_own_folder(request.directory());
  Attempt attempt(attempts_, host_, Attempt::Kind::kRestart, std::move(tell),
                  std::move(is_awaited));
  attempt.progress().begin({"look", {}, {}});
  const store::Store store(directory);
  const std::string id = request.checkpoint().empty() ? store.latest() : request.checkpoint();
  return restart_programs(
      host_, arrivals_, directory_,
      [this](const v1::RestartStep& check, TellBytes told) {
        return restart_part(check, std::move(told));
      },
      directory, open_checkpoint(store, directory, id, request.content_key()), request, attempt);
}

v1::RestartedPrograms Daemon::restart_to_wait(uid_t user, v1::RestartRequest request,
                                              std::function<bool()> is_awaited) {
  need_root(user);
  const std::string directory = need_own_folder(request.directory());
  const store::Store store(directory);
  if (request.checkpoint().empty()) request.set_checkpoint(store.latest());
  const auto checkpoint =
      open_checkpoint(store, directory, request.checkpoint(), request.content_key());
  const auto report = restart(
      user, request, [](const auto&) {}, std::move(is_awaited));
  return waited_programs(host_, checkpoint, report);
}

std::unique_ptr<Wait> Daemon::wait_for(uid_t user, const v1::RestartedPrograms& programs) {
  need_root(user);
  await_recovery();
  return std::make_unique<Wait>(host_, restarted_, programs);
}

v1::RestartedReply Daemon::restarted(const v1::RestartedRequest& request) {
  await_recovery();
  if (host_.stopping) throw Failure(fmt::format("the ferryd of {} is ending", host_.name));
  return restarted_.answer(request);
}

}  // namespace ferry::host
