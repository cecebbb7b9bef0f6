#include "host/checkpoint/take/take.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/failure.h"
#include "base/parallel.h"
#include "ferry.pb.h"
#include "host/journal/decision_log.h"
#include "host/peers/this_host.h"
#include "store/new_checkpoint.h"
#include "store/store.h"

namespace ferry::host {
namespace {

using Parts = std::vector<std::unique_ptr<HostPart>>;

std::multiset<std::string> names_of(const store::Manifest& manifest) {
  std::multiset<std::string> names;
  for (const auto& program : manifest.programs) names.insert(program.name);
  return names;
}

// Deletes older checkpoints of the same programs.
void keep_latest(const std::string& directory, const store::Manifest& latest, std::size_t keep) {
  const store::Store store(directory);
  std::vector<std::string> same;
  for (const auto& entry : store.list()) {
    if (entry.manifest && names_of(*entry.manifest) == names_of(latest)) same.push_back(entry.id);
  }
  for (std::size_t i = 0; i + keep < same.size(); ++i) store.remove(same[i]);
}

// Before anything is stopped.
void look(const Parts& parts) {
  std::vector<std::vector<Connection>> found(parts.size());
  std::vector<std::size_t> indexes;
  for (std::size_t i = 0; i < parts.size(); ++i) indexes.push_back(i);
  in_parallel(indexes, [&](std::size_t i) { found[i] = parts[i]->connections(); });
  std::vector<Connection> all;
  for (auto& some : found) all.insert(all.end(), some.begin(), some.end());
  need_closed(all);
}

// Gives the longest standstill.
double end_all(const Parts& parts) {
  std::vector<double> standstills(parts.size());
  std::vector<std::size_t> indexes;
  for (std::size_t i = 0; i < parts.size(); ++i) indexes.push_back(i);
  in_parallel(indexes, [&](std::size_t i) { standstills[i] = parts[i]->end(); });
  return *std::max_element(standstills.begin(), standstills.end());
}

store::Manifest store_images(const ThisHost& host, const Parts& parts, const std::string& id,
                             const std::string& directory, store::NewCheckpoint& fresh) {
  struct Job {
    HostPart& part;
    std::uint32_t first;
    std::vector<store::Program>& programs;
  };
  std::vector<std::vector<store::Program>> stored(parts.size());
  std::vector<Job> jobs;
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    jobs.push_back({*parts[i], first, stored[i]});
    first += static_cast<std::uint32_t>(parts[i]->programs());
  }
  in_parallel(jobs,
              [&](const Job& job) { job.programs = job.part.store(directory, id, job.first); });
  std::vector<store::Program> programs;
  for (auto& some : stored) programs.insert(programs.end(), some.begin(), some.end());
  return fresh.complete(host.version, std::move(programs));
}

}  // namespace

v1::CheckpointReport take_checkpoint(const ThisHost& host, Parts parts,
                                     const v1::CheckpointRequest& request) {
  const std::string id = fmt::format("{:016x}", new_move_id());
  // Before anything is stopped: whether something can be written there at all.
  store::NewCheckpoint fresh(request.directory(), id);
  const auto store = [&] { return store_images(host, parts, id, request.directory(), fresh); };
  look(parts);
  const auto began = std::chrono::steady_clock::now();
  in_parallel(parts, [](const auto& part) { part->freeze(); });
  in_parallel(parts, [](const auto& part) { part->dump(); });
  v1::CheckpointReport report;
  store::Manifest manifest;
  if (request.stop()) {
    manifest = store();
    try {
      end_all(parts);
    } catch (const Failure& failure) {
      throw Failure(fmt::format(
          "checkpoint {} is complete, but not all programs have ended, end those that go on: {}",
          id, failure.what()));
    }
  } else {
    report.set_standstill_ms(end_all(parts));
    manifest = store();
  }
  report.set_store_ms(milliseconds_between(began, std::chrono::steady_clock::now()));
  report.set_id(id);
  for (const auto& program : manifest.programs) {
    report.add_programs(program.name);
    report.add_hosts(program.host);
  }
  report.set_image_bytes(manifest.content());
  report.set_stored_bytes(manifest.stored());
  try {
    if (request.keep() > 0) keep_latest(request.directory(), manifest, request.keep());
  } catch (const Failure& failure) {
    report.set_not_deleted(failure.what());  // the checkpoint is there all the same
  }
  return report;
}

}  // namespace ferry::host
