#include "host/checkpoint/take/take.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/failure.h"
#include "base/json_text.h"
#include "ferry.pb.h"
#include "host/checkpoint/attempt.h"
#include "host/checkpoint/lead.h"
#include "host/checkpoint/step_kinds.h"
#include "host/checkpoint/take/connection_message.h"
#include "host/checkpoint/take/connections.h"
#include "host/checkpoint/take/content_keys.h"
#include "host/journal/decision_log.h"
#include "host/peers/this_host.h"
#include "store/new_checkpoint.h"
#include "store/store.h"

namespace ferry::host {
namespace {

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

using Clock = std::chrono::steady_clock;

std::vector<store::Program> images_of(const v1::CutReply& reply, const CutHost& host) {
  std::vector<store::Program> programs;
  try {
    for (const auto& text : reply.programs()) {
      programs.push_back(store::parse_program(json_of(text)));
      if (programs.back().host != host.name) throw Failure("a program of another host");
    }
  } catch (const std::exception& failure) {
    throw Failure(
        fmt::format("{} gave a malformed answer: {}", host.name, one_line(failure.what())));
  }
  if (programs.size() != host.programs.size()) {
    throw Failure(host.name + " gave a malformed answer: images of other programs");
  }
  return programs;
}

class CutLeader final : public Leader<v1::CutStep, v1::CutReply> {
 public:
  CutLeader(const ThisHost& host, std::vector<CutHost> hosts, const v1::CheckpointRequest& request,
            const std::optional<store::EncryptTo>& encryption, Attempt& attempt)
      : host_(host),
        request_(request),
        attempt_(attempt),
        progress_(attempt.progress()),
        id_(fmt::format("{:016x}", new_move_id())),
        fresh_(request.directory(), id_, encryption),
        hosts_(std::move(hosts)),
        images_(hosts_.size()) {
    if (encryption) key_ = encryption->key;
  }

  v1::CheckpointReport run() {
    std::vector<LedHost<v1::CutStep, v1::CutReply>> led;
    for (const auto& host : hosts_) led.push_back({*host.steps, progress_.of_host()});
    Lead lead(request_.stop() ? kStopCourse : kCheckpointCourse, std::move(led), *this);
    try {
      lead.run();
    } catch (const Failure& failure) {
      if (!lead.is_decided()) throw;
      throw Failure(
          fmt::format("checkpoint {} is complete, but not all hosts say that their programs have "
                      "ended; look with ferry ps, and end those that go on: {}",
                      id_, failure.what()));
    }
    return report();
  }

  const store::Manifest& manifest() const { return manifest_; }

 private:
  void begins(CourseStep step) override {
    switch (step) {
      case CourseStep::kCheck: progress_.begin({"check", "copy ahead", {}}); break;
      case CourseStep::kFreeze:
        began_ = Clock::now();
        progress_.begin({"stop", {}, {}});
        break;
      case CourseStep::kStore: progress_.begin({"store", {}, {}}); break;
      case CourseStep::kEnd: progress_.begin({request_.stop() ? "end" : "go on", {}, {}}); break;
      default: break;
    }
  }

  v1::CutStep told(CourseStep step, std::size_t host) override {
    v1::CutStep message;
    message.set_kind(cut_kind(step));
    if (step != CourseStep::kLook) return message;
    message.set_directory(request_.directory());
    message.set_id(id_);
    message.set_first(images_seen_);
    images_seen_ += static_cast<std::uint32_t>(hosts_[host].programs.size());
    for (const auto& program : hosts_[host].programs) message.add_programs(program);
    message.set_stop(request_.stop());
    if (key_) message.set_content_key(std::string(key_->bytes()));
    return message;
  }

  void answered(CourseStep step, std::size_t number, const v1::CutReply& reply) override {
    CutHost& host = hosts_[number];
    switch (step) {
      case CourseStep::kLook:
        if (reply.version() != host_.version) {
          throw Failure(fmt::format("{} has Ferry {}, and this host {}; install the same on both",
                                    host.name, printable(reply.version()), host_.version));
        }
        host.name = printable(reply.host());
        for (const auto& each : reply.connections()) connections_.push_back(from_message(each));
        break;
      case CourseStep::kStore: images_[number] = images_of(reply, host); break;
      case CourseStep::kEnd:
        standstill_ms_ = std::max(standstill_ms_, reply.standstill_ms());
        break;
      default: break;
    }
  }

  void taken(CourseStep step) override {
    if (step == CourseStep::kLook) return need_whole();
    if (step == CourseStep::kEnd && !request_.stop()) progress_.stood_still(standstill_ms_);
  }

  // Before anything is stopped.
  void need_whole() const {
    std::set<std::string> names;
    for (const auto& host : hosts_) {
      if (names.insert(host.name).second) continue;
      throw Failure(host.name + " is named in two ways: name all programs there with the same");
    }
    need_closed(connections_);
  }

  void decide() override {
    attempt_.decide();
    std::vector<store::Program> images;
    for (auto& of_host : images_)
      std::move(of_host.begin(), of_host.end(), std::back_inserter(images));
    manifest_ = fresh_.complete(host_.version, std::move(images));
  }

  void need_wanted() override { attempt_.need_wanted(); }

  v1::CheckpointReport report() const {
    v1::CheckpointReport report;
    if (!request_.stop()) report.set_standstill_ms(standstill_ms_);
    report.set_store_ms(milliseconds_between(began_, Clock::now()));
    report.set_id(id_);
    report.set_encrypted(key_.has_value());
    for (const auto& program : manifest_.programs) {
      report.add_programs(program.name);
      report.add_hosts(program.host);
    }
    report.set_image_bytes(manifest_.content());
    report.set_stored_bytes(manifest_.written());
    return report;
  }

  const ThisHost& host_;
  const v1::CheckpointRequest& request_;
  Attempt& attempt_;
  Progress& progress_;
  const std::string id_;
  // Before anything is stopped it is known whether something can be written there at all. What hosts have written there
  // is taken away when they write no more.
  store::NewCheckpoint fresh_;
  std::vector<CutHost> hosts_;
  std::optional<store::ContentKey> key_;
  std::uint32_t images_seen_ = 0;
  std::vector<Connection> connections_;
  std::vector<std::vector<store::Program>> images_;  // of the hosts
  Clock::time_point began_;
  double standstill_ms_ = 0;  // the longest one
  store::Manifest manifest_;
};

}  // namespace

v1::CheckpointReport take_checkpoint(const ThisHost& host, std::vector<CutHost> hosts,
                                     const v1::CheckpointRequest& request, ContentKeys& keys,
                                     Attempt& attempt) {
  CutLeader leader(host, std::move(hosts), request, encryption_of(request, keys), attempt);
  auto report = leader.run();
  try {
    if (request.keep() > 0) keep_latest(request.directory(), leader.manifest(), request.keep());
  } catch (const Failure& failure) {
    report.set_not_deleted(failure.what());  // the checkpoint is there all the same
  }
  return report;
}

}  // namespace ferry::host
