#include "host/checkpoint/restart/restart.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/parallel.h"
#include "ferry.pb.h"
#include "host/checkpoint/restart/placement.h"
#include "host/checkpoint/restart/remote_restart.h"
#include "host/checkpoint/together.h"
#include "host/directory/directory.h"
#include "host/peers/this_host.h"

namespace ferry::host {
namespace {

// A host where programs of the checkpoint may still run.
struct Former {
  std::string ferryd;  // address:port
  std::vector<std::string> facts, names;
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

// By name: those where the programs were, and those where they have gone on since. `force`: also when the directory
// cannot be asked.
std::map<std::string, Former> formers_of(const store::Manifest& manifest, Directory& directory,
                                         bool force) {
  std::map<std::string, Former> formers;
  std::mutex mutex;
  const auto add = [&](const std::string& host, const std::string& ferryd,
                       const store::Program& program) {
    std::lock_guard lock(mutex);
    Former& former = formers[host];
    former.ferryd = ferryd;
    former.facts.push_back(json_text(program.facts));
    former.names.push_back(program.name);
  };
  for (const auto& program : manifest.programs) {
    const auto facts = parse_facts(program.facts, program.name);
    if (facts.ferryd.empty()) continue;
    add(program.host, facts.ferryd, program);
    directory.met(facts.ferryd, program.host);
  }
  in_parallel(manifest.programs, [&](const store::Program& program) {
    std::optional<Place> place;
    try {
      place = place_of(parse_facts(program.facts, program.name), directory);
    } catch (const Failure& failure) {
      if (force) return;
      throw not_said("the directory", program.name, failure.what());
    }
    if (place && place->host != program.host) add(place->host, place->ferryd, program);
  });
  return formers;
}

// Asks each host where programs may still run whether they do.
void need_ended(const ThisHost& host, const Arrivals& arrivals, const store::Manifest& manifest,
                Directory& directory, bool force) {
  in_parallel(formers_of(manifest, directory, force), [&](const auto& entry) {
    const auto& [name, former] = entry;
    std::string running;
    if (name == host.name) {
      for (std::size_t i = 0; running.empty() && i < former.facts.size(); ++i) {
        running = what_runs(host, parse_facts(json_of(former.facts[i]), former.names[i]), arrivals,
                            directory);
      }
    } else {
      try {
        running = RemoteRestart(host, former.ferryd, name).what_runs(former.facts);
      } catch (const Failure& failure) {
        if (force) return;
        throw not_said(name, former.names.front(), failure.what());
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

}  // namespace

v1::RestartReport restart_programs(const ThisHost& host, Arrivals& arrivals, Directory& places,
                                   const LocalRestart::Check& check, const std::string& directory,
                                   store::Checkpoint checkpoint,
                                   const v1::RestartRequest& request) {
  const store::Manifest manifest = checkpoint.manifest();
  const auto placement = placement_of(manifest, request, host.name);
  checkpoint.lock();
  need_ended(host, arrivals, manifest, places, request.force());
  std::map<std::string, std::string> ferryds;  // of the hosts where the programs were
  for (const auto& program : manifest.programs) {
    ferryds[program.host] = parse_facts(program.facts, program.name).ferryd;
  }
  Parts parts;
  std::map<std::string, RemoteRestart*> others;  // as the placement calls them
  std::vector<PeerRecord> hosts{{host.address, host.name}};
  for (const auto& placed : placement) {
    if (placed.host == host.name) continue;
    const auto former = ferryds.find(placed.host);
    auto other = former == ferryds.end() || former->second.empty()
                     ? std::make_unique<RemoteRestart>(host, placed.host)
                     : std::make_unique<RemoteRestart>(host, former->second, placed.host);
    hosts.push_back(other->record());
    others[placed.host] = other.get();
    parts.push_back(std::move(other));
  }
  v1::RestartReport report;
  report.set_id(manifest.id);
  for (const auto& program : manifest.programs) {
    report.add_programs(program.name);
    report.add_hosts(host.name);
  }
  for (const auto& placed : placement) {
    if (placed.host == host.name) {
      parts.push_back(std::make_unique<LocalRestart>(
          host, arrivals, places, check, std::move(checkpoint), placed.programs, hosts));
      continue;
    }
    RemoteRestart& other = *others.at(placed.host);
    other.set_programs(directory, manifest.id, placed.programs, hosts);
    for (const auto program : placed.programs) {
      report.set_hosts(static_cast<int>(program), other.host());
    }
  }
  together(parts, host.stopping, [](HostRestart& part) { part.check(); });
  std::mutex mutex;
  std::string kept_aside;
  try {
    together(parts, host.stopping, [&](HostRestart& part) {
      const auto kept = part.restore();
      std::lock_guard lock(mutex);
      for (const auto& file : kept) {
        report.add_kept_aside(parts.size() == 1 ? file
                                                : fmt::format("{} on {}", file, part.host()));
      }
    });
  } catch (const Failure& failure) {
    // The failure names those of its own host.
    for (const auto& file : report.kept_aside()) {
      kept_aside +=
          (kept_aside.empty() ? "; what was written after the checkpoint is in " : ", ") + file;
    }
    throw Failure(failure.what() + kept_aside);
  }
  try {
    together(parts, host.stopping, [](HostRestart& part) { part.go_on(); });
  } catch (const Failure& failure) {
    throw Failure(
        fmt::format("{}; programs may go on all the same, on {}: end them before the next restart",
                    failure.what(), hosts_of(parts)));
  }
  return report;
}

}  // namespace ferry::host
