#include "host/checkpoint/restart/restart.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/together.h"
#include "ferry.pb.h"
#include "host/checkpoint/attempt.h"
#include "host/checkpoint/restart/decision.h"
#include "host/checkpoint/restart/placement.h"
#include "host/checkpoint/restart/remote_restart.h"
#include "host/directory/directory.h"
#include "host/journal/decision_log.h"
#include "host/peers/this_host.h"
#include "store/content_key.h"

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
        running = RemoteRestart(host, former.ferryd, {}, name).what_runs(texts, force);
      } catch (const Failure& failure) {
        if (force) return;
        throw not_said(name, programs[former.programs.front()].name, failure.what());
      }
    }
    if (!running.empty()) throw Failure(running + " end it before it is restarted");
  });
}

using Parts = std::vector<std::unique_ptr<HostRestart>>;

// The hosts where programs may run after a failure.
std::string hosts_of(const Parts& parts) {
  std::string names;
  for (const auto& part : parts) names += (names.empty() ? "" : ", ") + part->host();
  return names;
}

// The ferryd of a host that the placement names: by that name if the user has given it, else where the programs were.
std::unique_ptr<RemoteRestart> remote_part(const ThisHost& host, const store::Manifest& manifest,
                                           const std::vector<Facts>& facts,
                                           const v1::RestartRequest& request,
                                           const std::string& name, TellBytes tell) {
  bool is_given = !request.hosts().empty();
  for (const auto& [from, to] : request.map()) is_given = is_given || to == name;
  for (std::size_t i = 0; !is_given && i < facts.size(); ++i) {
    if (manifest.programs[i].host != name || facts[i].ferryd.empty()) continue;
    return std::make_unique<RemoteRestart>(host, facts[i].ferryd, std::move(tell), name);
  }
  return std::make_unique<RemoteRestart>(host, name, std::move(tell));
}

void need_different(const ThisHost& host, const Parts& parts) {
  std::set<std::string> names{host.name};
  for (const auto& part : parts) {
    if (names.insert(part->host()).second) continue;
    throw Failure(part->host() + " is named in two ways: name it once");
  }
}

// For the next restart, which asks these hosts.
void note_restart(const store::Checkpoint& checkpoint, const std::vector<Placed>& placement,
                  const ThisHost& host, const std::map<std::string, RemoteRestart*>& others) {
  std::vector<std::string> records;
  for (const auto& placed : placement) {
    const auto other = others.find(placed.host);
    const PeerRecord record =
        other == others.end() ? PeerRecord{host.address, host.name} : other->second->record();
    records.push_back(fmt::format("{}@{}", record.name, record.address));
  }
  try {
    checkpoint.note_restart(records);
  } catch (const Failure& failure) {
    log::warn("{}; the next restart of checkpoint {} may not ask the hosts of this one",
              failure.what(), checkpoint.manifest().id);
  }
}

// CHECK for all hosts, without programs.
v1::RestartStep check_step(const std::string& directory, const std::string& id,
                           const v1::RestartRequest& request, const std::vector<PeerRecord>& hosts,
                           std::uint64_t attempt) {
  v1::RestartStep step;
  step.set_kind(v1::RestartStep::CHECK);
  step.set_directory(directory);
  step.set_id(id);
  step.set_force(request.force());
  step.set_content_key(request.content_key());
  step.set_attempt(attempt);
  for (const auto& host : hosts) {
    auto& partner = *step.add_hosts();
    partner.set_host(host.name);
    partner.set_ferryd(host.address);
  }
  return step;
}

}  // namespace

v1::RestartReport restart_programs(const ThisHost& host, Arrivals& arrivals, Directory& places,
                                   const LocalRestart::Check& check, const std::string& directory,
                                   store::Checkpoint checkpoint, const v1::RestartRequest& request,
                                   Attempt& attempt) {
  Progress& progress = attempt.progress();
  const auto need_wanted = [&] { attempt.need_wanted(); };
  progress.begin({"check", {}, {}});
  const store::Manifest manifest = checkpoint.manifest();
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
  std::optional<RestartDecision> decision;
  Parts parts;
  std::map<std::string, RemoteRestart*> others;  // as the placement calls them
  std::vector<PeerRecord> hosts{{host.address, host.name}};
  for (const auto& placed : placement) {
    if (placed.host == host.name) continue;
    attempt.need_wanted();
    auto other = remote_part(host, manifest, facts, request, placed.host, progress.of_host());
    places.met(other->record().address, other->record().name);
    hosts.push_back(other->record());
    others[placed.host] = other.get();
    parts.push_back(std::move(other));
  }
  need_different(host, parts);
  note_restart(checkpoint, placement, host, others);
  if (!others.empty()) decision.emplace(host, directory, manifest.id, number);
  v1::RestartStep first = check_step(directory, manifest.id, request, hosts, number);
  v1::RestartReport report;
  report.set_id(manifest.id);
  for (const auto& program : manifest.programs) {
    report.add_programs(program.name);
    report.add_hosts(host.name);
  }
  for (const auto& placed : placement) {
    if (placed.host == host.name) {
      parts.push_back(std::make_unique<LocalRestart>(host, arrivals, places, check,
                                                     std::move(checkpoint), placed.programs, hosts,
                                                     request.force(), progress.of_host()));
      continue;
    }
    RemoteRestart& other = *others.at(placed.host);
    first.mutable_programs()->Assign(placed.programs.begin(), placed.programs.end());
    other.set_programs(first);
    for (const auto program : placed.programs) {
      report.set_hosts(static_cast<int>(program), other.host());
    }
  }
  store::wipe(first.mutable_content_key());
  together(parts, need_wanted, [](HostRestart& part) { part.check(); });
  progress.begin({"read", {}, "restore"});
  std::mutex mutex;
  try {
    together(parts, need_wanted, [&](HostRestart& part) {
      const auto kept = part.restore();
      std::lock_guard lock(mutex);
      for (const auto& file : kept) {
        report.add_kept_aside(parts.size() == 1 ? file
                                                : fmt::format("{} on {}", file, part.host()));
      }
    });
    attempt.decide();
  } catch (const GivenUp& failure) {
    throw Failure(
        fmt::format("{}; the ends of files that it has cut back, if any, are in FILE.ferry-{}",
                    failure.what(), manifest.id));
  } catch (const Failure& failure) {
    if (parts.size() == 1) throw;
    throw Failure(fmt::format(
        "{}; files that were cut back on other hosts have their ends in FILE.ferry-{} there",
        failure.what(), manifest.id));
  }
  if (decision) decision->go_on();
  progress.begin({"go on", {}, {}});
  try {
    together(parts, need_wanted, [](HostRestart& part) { part.go_on(); });
  } catch (const Failure& failure) {
    throw Failure(
        fmt::format("{}; programs may go on all the same, on {}: end them before the next restart",
                    failure.what(), hosts_of(parts)));
  }
  if (decision) decision->all_know();
  return report;
}

}  // namespace ferry::host
