#include "host/checkpoint/take/take.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/failure.h"
#include "base/together.h"
#include "ferry.pb.h"
#include "host/checkpoint/attempt.h"
#include "host/checkpoint/take/content_keys.h"
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

// Deletes older checkpoints of the same programs: encrypted ones for an encrypted one only, and others for others.
void keep_latest(const std::string& directory, const store::Manifest& latest, std::size_t keep) {
  const store::Store store(directory);
  std::vector<std::string> same;
  for (const auto& entry : store.list()) {
    if (!entry.manifest || names_of(*entry.manifest) != names_of(latest)) continue;
    const bool is_encrypted = entry.manifest->encryption.has_value();
    if (is_encrypted == latest.encryption.has_value()) same.push_back(entry.id);
  }
  for (std::size_t i = 0; i + keep < same.size(); ++i) store.remove(same[i]);
}

template <typename Step>
void all_take(Attempt& attempt, const Parts& parts, Step step) {
  together(
      parts, [&] { attempt.need_wanted(); }, step);
}

// What the steps of all parts give, in the order of the parts.
template <typename Result, typename Step>
std::vector<Result> all_of(Attempt& attempt, const Parts& parts, Step step) {
  std::map<const HostPart*, Result> results;
  for (const auto& part : parts) results[part.get()];
  all_take(attempt, parts, [&](HostPart& part) { results.at(&part) = step(part); });
  std::vector<Result> ordered;
  for (const auto& part : parts) ordered.push_back(std::move(results.at(part.get())));
  return ordered;
}

template <typename Each>
std::vector<Each> joined(const std::vector<std::vector<Each>>& lists) {
  std::vector<Each> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// Before anything is stopped.
void look(Attempt& attempt, const Parts& parts, const std::string& directory, const std::string& id,
          const std::optional<store::ContentKey>& key) {
  std::map<const HostPart*, std::uint32_t> first;
  std::uint32_t images = 0;
  for (const auto& part : parts) {
    first[part.get()] = images;
    images += static_cast<std::uint32_t>(part->programs());
  }
  const auto connections = all_of<std::vector<Connection>>(attempt, parts, [&](HostPart& part) {
    return part.look(directory, id, first.at(&part), key);
  });
  std::set<std::string> hosts;
  for (const auto& part : parts) {
    if (hosts.insert(part->host()).second) continue;
    throw Failure(part->host() + " is named in two ways: name all programs there with the same");
  }
  need_closed(joined(connections));
  attempt.progress().begin({"check", "copy ahead", {}});
  all_take(attempt, parts, [](HostPart& part) { part.check(); });
}

// Nothing: it is not encrypted.
std::optional<store::EncryptTo> encryption_of(const v1::CheckpointRequest& request,
                                              ContentKeys& keys) {
  if (request.recipients().empty()) return std::nullopt;
  store::Recipients recipients;
  for (int i = 0; i < request.recipients_size(); ++i) {
    recipients.add(request.recipients(i), fmt::format("certificate {} of --encrypt-to", i + 1));
  }
  return store::EncryptTo{keys.key_for(request.directory(), recipients), recipients};
}

// Gives the longest standstill.
double end_all(Attempt& attempt, const Parts& parts) {
  const auto standstills =
      all_of<double>(attempt, parts, [](HostPart& part) { return part.end(); });
  return *std::max_element(standstills.begin(), standstills.end());
}

}  // namespace

v1::CheckpointReport take_checkpoint(const ThisHost& host, Parts given,
                                     const v1::CheckpointRequest& request, ContentKeys& keys,
                                     Attempt& attempt) {
  Progress& progress = attempt.progress();
  const auto encryption = encryption_of(request, keys);
  const std::string id = fmt::format("{:016x}", new_move_id());
  // Before anything is stopped: whether something can be written there at all.
  store::NewCheckpoint fresh(request.directory(), id, encryption);
  const Parts parts =
      std::move(given);  // ends before that, which takes away what the parts have written
  const auto store = [&] {
    progress.begin({"store", {}, {}});
    const auto images = all_of<std::vector<store::Program>>(
        attempt, parts, [](HostPart& part) { return part.store(); });
    attempt.decide();
    return fresh.complete(host.version, joined(images));
  };
  look(attempt, parts, request.directory(), id,
       encryption ? std::optional(encryption->key) : std::nullopt);
  const auto began = std::chrono::steady_clock::now();
  progress.begin({"stop", {}, {}});
  all_take(attempt, parts, [](HostPart& part) { part.freeze(); });
  all_take(attempt, parts, [](HostPart& part) { part.dump(); });
  v1::CheckpointReport report;
  store::Manifest manifest;
  if (request.stop()) {
    manifest = store();
    progress.begin({"end", {}, {}});
    try {
      end_all(attempt, parts);
    } catch (const Failure& failure) {
      throw Failure(
          fmt::format("checkpoint {} is complete, but not all hosts say that their programs have "
                      "ended; look with ferry ps, and end those that go on: {}",
                      id, failure.what()));
    }
  } else {
    progress.begin({"go on", {}, {}});
    report.set_standstill_ms(end_all(attempt, parts));
    progress.stood_still(report.standstill_ms());
    manifest = store();
  }
  report.set_store_ms(milliseconds_between(began, std::chrono::steady_clock::now()));
  report.set_id(id);
  report.set_encrypted(encryption.has_value());
  for (const auto& program : manifest.programs) {
    report.add_programs(program.name);
    report.add_hosts(program.host);
  }
  report.set_image_bytes(manifest.content());
  report.set_stored_bytes(manifest.written());
  try {
    if (request.keep() > 0) keep_latest(request.directory(), manifest, request.keep());
  } catch (const Failure& failure) {
    report.set_not_deleted(failure.what());  // the checkpoint is there all the same
  }
  return report;
}

}  // namespace ferry::host
