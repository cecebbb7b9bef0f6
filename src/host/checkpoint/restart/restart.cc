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
#include "host/directory/directory.h"
#include "host/peers/this_host.h"

namespace ferry::host {
namespace {

// A host where programs of the checkpoint may still run.
struct Former {
  std::string ferryd;  // address:port
  std::vector<std::string> facts, names;
};

// By name: those where they were, and those where they have gone on since by what the directory knows.
std::map<std::string, Former> formers_of(const store::Manifest& manifest, Directory& directory) {
  std::map<std::string, Former> formers;
  const auto add = [&](const std::string& host, const std::string& ferryd,
                       const store::Program& program) {
    if (ferryd.empty()) return;
    Former& former = formers[host];
    former.ferryd = ferryd;
    former.facts.push_back(json_text(program.facts));
    former.names.push_back(program.name);
  };
  for (const auto& program : manifest.programs) {
    const auto facts = parse_facts(program.facts, program.name);
    add(program.host, facts.ferryd, program);
    for (const auto& process : facts.places) {
      for (const auto& context : process.contexts) {
        if (context.slots.empty()) continue;
        std::optional<Place> place;
        try {
          place = directory.lookup(context.slots.front().origin);
        } catch (const Failure&) {
          continue;  // nobody could be asked
        }
        if (place && !place->ended) add(place->host, place->ferryd, program);
      }
    }
  }
  return formers;
}

// Asks each of the other hosts where programs may still run whether they do.
void need_ended(const ThisHost& host, const store::Manifest& manifest, Directory& directory,
                bool force) {
  auto formers = formers_of(manifest, directory);
  formers.erase(host.name);
  in_parallel(formers, [&](const auto& entry) {
    const auto& [name, former] = entry;
    std::string running;
    try {
      running = RemoteRestart(host, former.ferryd, name).what_runs(former.facts);
    } catch (const Failure& failure) {
      if (force) return;
      throw Failure(fmt::format(
          "{} does not say whether '{}' still runs there ({}); see to it that it does not, and "
          "restart with --force",
          printable(name), printable(former.names.front()), failure.what()));
    }
    if (running.empty()) return;
    throw Failure(fmt::format("{} end it before it is restarted", running));
  });
}

using Parts = std::vector<std::unique_ptr<HostRestart>>;

void go_on_all(const Parts& parts) {
  std::mutex mutex;
  std::string failures;
  std::size_t failed = 0;
  in_parallel(parts, [&](const auto& part) {
    try {
      part->go_on();
    } catch (const Failure& failure) {
      std::lock_guard lock(mutex);
      failures += (failed++ == 0 ? "" : "; ") + std::string(failure.what());
    }
  });
  if (failed == 0) return;
  if (failed < parts.size()) {
    failures += "; programs of other hosts go on: end them before the next restart";
  }
  throw Failure(failures);
}

}  // namespace

v1::RestartReport restart_programs(const ThisHost& host, Arrivals& arrivals, Directory& places,
                                   const LocalRestart::Check& check, const std::string& directory,
                                   store::Checkpoint checkpoint,
                                   const v1::RestartRequest& request) {
  const store::Manifest manifest = checkpoint.manifest();
  const auto placement = placement_of(manifest, request, host.name);
  need_ended(host, manifest, places, request.force());
  Parts parts;
  std::vector<RemoteRestart*> others;
  std::vector<PeerRecord> hosts{{host.address, host.name}};
  for (const auto& placed : placement) {
    if (placed.host == host.name) continue;
    auto other = std::make_unique<RemoteRestart>(host, placed.host);
    hosts.push_back(other->record());
    others.push_back(other.get());
    parts.push_back(std::move(other));
  }
  v1::RestartReport report;
  report.set_id(manifest.id);
  for (const auto& program : manifest.programs) report.add_programs(program.name);
  std::vector<std::string> where(manifest.programs.size());
  auto other = others.begin();
  for (const auto& placed : placement) {
    if (placed.host == host.name) {
      parts.push_back(std::make_unique<LocalRestart>(host, arrivals, check, std::move(checkpoint),
                                                     placed.programs, hosts));
    } else {
      (*other)->set_programs(directory, manifest.id, placed.programs, hosts);
    }
    const std::string name = placed.host == host.name ? host.name : (*other++)->host();
    for (const auto program : placed.programs) where[program] = name;
  }
  for (const auto& name : where) report.add_hosts(name);
  in_parallel(parts, [](const auto& part) { part->check(); });
  std::mutex mutex;
  in_parallel(parts, [&](const auto& part) {
    const auto kept = part->restore();
    std::lock_guard lock(mutex);
    for (const auto& file : kept) {
      report.add_kept_aside(parts.size() == 1 ? file : fmt::format("{} on {}", file, part->host()));
    }
  });
  go_on_all(parts);
  return report;
}

}  // namespace ferry::host
