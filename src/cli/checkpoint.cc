#include "cli/checkpoint.h"

#include <fmt/core.h>
#include <pwd.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/failure.h"
#include "cli/ferryd/local_ferryd.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/private_key.h"
#include "cli/text/size.h"
#include "ferry.grpc.pb.h"
#include "store/recipients.h"
#include "store/store.h"

namespace ferry::cli {
namespace {

constexpr int kMostInVain = 3;  // of periodic checkpoints that fail one after the other

// ferryd has another working directory.
std::string absolute(const std::string& directory) {
  std::error_code error;
  const auto path = std::filesystem::canonical(directory, error);
  if (error)
    throw Failure(fmt::format("cannot read {}: {}", printable(directory), error.message()));
  return path;
}

// "a, b on h1; c on h2".
template <typename Report>
std::string names_of(const Report& report) {
  std::string text;
  std::set<std::string> told;
  for (const auto& host : report.hosts()) {
    if (!told.insert(host).second) continue;
    std::string names;
    for (int i = 0; i < report.programs_size(); ++i) {
      if (report.hosts(i) == host) names += (names.empty() ? "" : ", ") + report.programs(i);
    }
    text += fmt::format("{}{} on {}", text.empty() ? "" : "; ", names, host);
  }
  return text;
}

v1::CheckpointReport take(const v1::CheckpointRequest& request) {
  LocalFerryd ferryd;
  v1::CheckpointReport report;
  throw_unless_ok(ferryd->Checkpoint(ferryd.context(), request, &report));
  if (!request.recipients().empty() && !report.encrypted()) {
    throw Failure(fmt::format(
        "the ferryd of this host is of another version: checkpoint {} is not encrypted, delete it "
        "with: ferry checkpoints {} rm {}",
        report.id(), printable(request.directory()), report.id()));
  }
  return report;
}

// The content key of the checkpoint that is to go on; notes in the request which one that is.
std::string unwrapped_key(const std::string& key, v1::RestartRequest* request) {
  const store::PrivateKey own = private_key(key);
  const store::Store stored(request->directory());
  if (request->checkpoint().empty()) request->set_checkpoint(stored.latest());
  auto checkpoint = stored.open(request->checkpoint());
  const store::ContentKey content_key = checkpoint.content_key(own);
  checkpoint.unlock(content_key);
  return std::string(content_key.bytes());
}

void print(const v1::CheckpointRequest& request, const v1::CheckpointReport& report) {
  fmt::print("checkpoint {} of {}: {}, image {}, stored {}{} after {:.1f} s\n", report.id(),
             names_of(report),
             request.stop() ? "ended" : fmt::format("standstill {:.1f} ms", report.standstill_ms()),
             size_text(report.image_bytes()), size_text(report.stored_bytes()),
             report.encrypted() ? " encrypted" : "", report.store_ms() / 1e3);
  for (const auto& host : report.silent()) {
    fmt::print(
        stderr,
        "ferry: {} does not answer: programs there that are connected with none of these are "
        "not in the checkpoint\n",
        host);
  }
  if (!report.not_deleted().empty()) {
    fmt::print(stderr, "ferry: older checkpoints are still there: {}\n", report.not_deleted());
  }
}

}  // namespace

void encrypt_to(const std::vector<std::string>& certificates, v1::CheckpointRequest* request) {
  store::Recipients recipients;
  for (const auto& file : certificates) recipients.add(read_file(file), file);
  for (auto& pem : recipients.pems()) request->add_recipients(std::move(pem));
}

int checkpoint(v1::CheckpointRequest request, bool json) {
  request.set_directory(absolute(request.directory()));
  const auto report = take(request);
  if (json) {
    fmt::print("{}\n", to_json(report).dump(2));
  } else {
    print(request, report);
  }
  return 0;
}

int checkpoint_every(v1::CheckpointRequest request, std::chrono::seconds interval, bool json) {
  request.set_directory(absolute(request.directory()));
  bool is_first = true;
  for (int in_vain = 0;; is_first = false) {
    const auto next = std::chrono::steady_clock::now() + interval;
    try {
      const auto report = take(request);
      in_vain = 0;
      if (json) {
        fmt::print("{}\n", to_json(report).dump());
      } else {
        print(request, report);
      }
      std::fflush(stdout);
    } catch (const Failure& failure) {
      if (is_first || ++in_vain == kMostInVain) throw;
      fmt::print(stderr, "ferry: {}; the next checkpoint is tried {} s after this one\n",
                 failure.what(), interval.count());
    }
    std::this_thread::sleep_until(next);
  }
}

uid_t user_number(const std::string& user) {
  uid_t number = 0;
  const char* const end = user.data() + user.size();
  const auto [rest, error] = std::from_chars(user.data(), end, number);
  if (error == std::errc() && rest == end) return number;
  const passwd* const entry = ::getpwnam(user.c_str());
  if (entry == nullptr) throw Failure(fmt::format("there is no user '{}' here", printable(user)));
  return entry->pw_uid;
}

int restart(v1::RestartRequest request, const std::string& key, bool json) {
  request.set_directory(absolute(request.directory()));
  if (!key.empty()) request.set_content_key(unwrapped_key(key, &request));
  LocalFerryd ferryd;
  v1::RestartReport report;
  const auto status = ferryd->Restart(ferryd.context(), request, &report);
  store::wipe(request.mutable_content_key());
  throw_unless_ok(status);
  if (json) {
    fmt::print("{}\n", to_json(report).dump(2));
    return 0;
  }
  fmt::print("checkpoint {} goes on: {}\n", report.id(), names_of(report));
  for (const auto& file : report.kept_aside()) {
    fmt::print("{} has what was written after the checkpoint\n", file);
  }
  return 0;
}

}  // namespace ferry::cli
