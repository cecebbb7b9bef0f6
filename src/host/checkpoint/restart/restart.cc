#include "host/checkpoint/restart/restart.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/parallel.h"
#include "ferry.pb.h"
#include "host/checkpoint/attempt.h"
#include "host/checkpoint/lead.h"
#include "host/checkpoint/restart/decision.h"
#include "host/checkpoint/restart/local_restart.h"
#include "host/checkpoint/restart/placement.h"
#include "host/checkpoint/restart/restart_host.h"
#include "host/checkpoint/step_kinds.h"
#include "host/directory/directory.h"
#include "host/journal/decision_log.h"
#include "host/peers/this_host.h"

namespace ferry::host {
namespace {

// A host where programs of the checkpoint may still run.
struct Former {
  std::string ferryd;                 // address:port
  std::vector<std::size_t> programs;  // their numbers in the checkpoint
};

Failure not_said(const std::string& host, const std::string& program, const std::string& reason) {
  return Failure(
      fmt::format("{} does not say whether '{}' still runs there ({}); see to it that it does not, "
                  "and restart with --force",
                  printable(host), printable(program), reason));
}

// Where the program is by what the directory knows; nothing: where it was.
std::optional<Place> place_of(const Facts& facts, Directory& directory) {
  for (const auto& process : facts.places) {
    for (const auto& context : process.contexts) {
      if (!context.slots.empty()) return directory.lookup(context.slots.front().origin);
    }
  }
  return std::nullopt;
}

// By name: those where the programs were, those where the latest restart has put them, and those where they have gone
// on since by what the directory knows. `force`: also when that cannot be asked.
std::map<std::string, Former> formers_of(const store::Checkpoint& checkpoint,
                                         const std::vector<Facts>& facts, Directory& directory,
                                         bool force) {
  const auto& programs = checkpoint.manifest().programs;
  std::vector<std::size_t> numbers(programs.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  std::map<std::string, Former> formers;
  std::mutex mutex;
  const auto add = [&](const std::string& host, const std::string& ferryd, std::size_t program) {
    std::lock_guard lock(mutex);
    Former& former = formers[host];
    former.ferryd = ferryd;
    former.programs.push_back(program);
  };
  for (const auto number : numbers) {
    const auto& ferryd = facts[number].ferryd;
    if (ferryd.empty()) continue;
    add(programs[number].host, ferryd, number);
    directory.met(ferryd, programs[number].host);
  }
  for (const auto& record : checkpoint.hosts_of_latest_restart()) {
    const auto host = parse_peer(record);
    if (formers.contains(host.name)) continue;
    for (const auto number : numbers) add(host.name, host.address, number);
    directory.met(host.address, host.name);
  }
  in_parallel(numbers, [&](std::size_t number) {
    const auto& program = programs[number];
    std::optional<Place> place;
    try {
      place = place_of(facts[number], directory);
    } catch (const Failure& failure) {
      if (force) return;
      throw not_said("the directory", program.name, failure.what());
    }
    if (place && place->host != program.host) add(place->host, place->ferryd, number);
  });
  return formers;
}

// Asks each host where programs may still run whether they do.
void need_ended(const ThisHost& host, const Arrivals& arrivals, const store::Checkpoint& checkpoint,
                const std::vector<Facts>& facts, Directory& directory, bool force) {
  const auto& programs = checkpoint.manifest().programs;
  in_parallel(formers_of(checkpoint, facts, directory, force), [&](const auto& entry) {
    const auto& [name, former] = entry;
    std::string running;
    if (name == host.name) {
      for (const auto number : former.programs) {
        if (running.empty()) running = what_runs(host, facts[number], arrivals, directory, force);
      }
    } else {
      std::vector<std::string> texts;
      for (const auto number : former.programs) texts.push_back(json_text(programs[number].facts));
      try {
        auto there = restart_host_there(host, former.ferryd, {}, name);
        running = what_runs_there(there, texts, force);
      } catch (const Failure& failure) {
        if (force) return;
        throw not_said(name, programs[former.programs.front()].name, failure.what());
      }
    }
    if (!running.empty()) throw Failure(running + " end it before it is restarted");
  });
}

// The ferryd of a host that the placement names: by that name if the user has given it, else where the programs were.
RestartHost host_there(const ThisHost& host, const store::Manifest& manifest,
                       const std::vector<Facts>& facts, const v1::RestartRequest& request,
                       const Placed& placed) {
  const std::string& name = placed.host;
  bool is_given = !request.hosts().empty();
  for (const auto& [from, to] : request.map()) is_given = is_given || to == name;
  for (std::size_t i = 0; !is_given && i < facts.size(); ++i) {
    if (manifest.programs[i].host != name || facts[i].ferryd.empty()) continue;
    return restart_host_there(host, facts[i].ferryd, placed.programs, name);
  }
  return restart_host_there(host, name, placed.programs);
}

void need_different(const ThisHost& here, const std::vector<RestartHost>& hosts) {
  std::set<std::string> names{here.name};
  for (const auto& host : hosts) {
    if (!host.peer || names.insert(host.record.name).second) continue;
    throw Failure(host.record.name + " is named in two ways: name it once");
  }
}

// For the next restart, which asks these hosts.
void note_restart(const store::Checkpoint& checkpoint, const std::vector<RestartHost>& hosts) {
  std::vector<std::string> records;
  for (const auto& [record, programs, peer, steps] : hosts) {
    records.push_back(fmt::format("{}@{}", record.name, record.address));
  }
  try {
    checkpoint.note_restart(records);
  } catch (const Failure& failure) {
    log::warn("{}; the next restart of checkpoint {} may not ask the hosts of this one",
              failure.what(), checkpoint.manifest().id);
  }
}

class RestartLeader final : public Leader<v1::RestartStep, v1::RestartStepReply> {
 public:
  // `decision`: nothing: all programs go on here.
  RestartLeader(const v1::RestartRequest& request, const std::string& directory,
                const store::Manifest& manifest, std::uint64_t number,
                std::vector<RestartHost> hosts, std::optional<RestartDecision>& decision,
                Attempt& attempt)
      : request_(request),
        directory_(directory),
        manifest_(manifest),
        number_(number),
        hosts_(std::move(hosts)),
        decision_(decision),
        attempt_(attempt) {
    report_.set_id(manifest.id);
    for (const auto& program : manifest.programs) {
      report_.add_programs(program.name);
      report_.add_hosts();
    }
    for (const auto& host : hosts_) {
      for (const auto program : host.programs) {
        report_.set_hosts(static_cast<int>(program), host.record.name);
      }
    }
  }

  v1::RestartReport run() {
    std::vector<LedHost<v1::RestartStep, v1::RestartStepReply>> led;
    for (const auto& host : hosts_) led.push_back({*host.steps, attempt_.progress().of_host()});
    Lead lead(kRestartCourse, std::move(led), *this);
    try {
      lead.run();
    } catch (const GivenUp& failure) {
      if (lead.step() == CourseStep::kCheck) throw;
      throw Failure(
          fmt::format("{}; the ends of files that it has cut back, if any, are in FILE.ferry-{}",
                      failure.what(), manifest_.id));
    } catch (const Failure& failure) {
      throw Failure(failure.what() + where_to_look(lead));
    }
    if (decision_) decision_->all_know();
    return report_;
  }

 private:
  std::string where_to_look(const Lead<v1::RestartStep, v1::RestartStepReply>& lead) const {
    if (lead.is_decided()) {
      return fmt::format(
          "; programs may go on all the same, on {}: end them before the next restart", names());
    }
    if (lead.step() == CourseStep::kCheck || hosts_.size() == 1) return {};
    return fmt::format(
        "; files that were cut back on other hosts have their ends in FILE.ferry-{} there",
        manifest_.id);
  }

  // Of the hosts where programs may run after a failure.
  std::string names() const {
    std::string names;
    for (const auto& host : hosts_) names += (names.empty() ? "" : ", ") + host.record.name;
    return names;
  }

  void begins(CourseStep step) override {
    if (step == CourseStep::kRestore) attempt_.progress().begin({"read", {}, "restore"});
    if (step == CourseStep::kGoOn) attempt_.progress().begin({"go on", {}, {}});
  }

  v1::RestartStep told(CourseStep step, std::size_t number) override {
    v1::RestartStep message;
    message.set_kind(restart_kind(step));
    if (step != CourseStep::kCheck) return message;
    const auto& to = hosts_[number];
    message.set_directory(directory_);
    message.set_id(manifest_.id);
    message.mutable_programs()->Assign(to.programs.begin(), to.programs.end());
    message.set_force(request_.force());
    message.set_content_key(request_.content_key());
    message.set_attempt(number_);
    for (const auto& host : hosts_) {
      auto& partner = *message.add_hosts();
      partner.set_host(host.record.name);
      partner.set_ferryd(host.record.address);
    }
    return message;
  }

  void answered(CourseStep step, std::size_t number, const v1::RestartStepReply& reply) override {
    if (step != CourseStep::kRestore) return;
    for (const auto& file : reply.kept_aside()) {
      report_.add_kept_aside(hosts_.size() == 1 ? printable(file)
                                                : fmt::format("{} on {}", printable(file),
                                                              hosts_[number].record.name));
    }
  }

  void taken(CourseStep) override {}

  void decide() override {
    attempt_.decide();
    if (decision_) decision_->go_on();
  }

  void need_wanted() override { attempt_.need_wanted(); }

  const v1::RestartRequest& request_;
  const std::string& directory_;
  const store::Manifest& manifest_;
  const std::uint64_t number_;  // of the attempt
  std::vector<RestartHost> hosts_;
  std::optional<RestartDecision>& decision_;
  Attempt& attempt_;
  v1::RestartReport report_;
};

}  // namespace

v1::RestartReport restart_programs(const ThisHost& host, Arrivals& arrivals, Directory& places,
                                   const BeginRestart& begin, const std::string& directory,
                                   store::Checkpoint checkpoint, const v1::RestartRequest& request,
                                   Attempt& attempt) {
  attempt.progress().begin({"check", {}, {}});
  const store::Manifest& manifest = checkpoint.manifest();
  const auto placement = placement_of(manifest, request, host.name);
  if (!checkpoint.lock()) {
    log::warn(
        "the file system of {} has no locks: see to it that nobody else restarts checkpoint {} "
        "meanwhile",
        printable(directory), manifest.id);
  }
  std::vector<Facts> facts;
  for (const auto& program : manifest.programs) {
    facts.push_back(parse_facts(program.facts, program.name));
  }
  need_ended(host, arrivals, checkpoint, facts, places, request.force());
  const std::uint64_t number = new_move_id();
  std::vector<RestartHost> hosts;
  bool has_others = false;
  for (const auto& placed : placement) {
    if (placed.host == host.name) {
      hosts.push_back(restart_host_here(host, placed.programs, begin));
      continue;
    }
    attempt.need_wanted();
    hosts.push_back(host_there(host, manifest, facts, request, placed));
    places.met(hosts.back().record.address, hosts.back().record.name);
    has_others = true;
  }
  need_different(host, hosts);
  note_restart(checkpoint, hosts);
  std::optional<RestartDecision> decision;
  if (has_others) decision.emplace(host, directory, manifest.id, number);
  return RestartLeader(request, directory, manifest, number, std::move(hosts), decision, attempt)
      .run();
}

}  // namespace ferry::host
