#include "cli/checkpoint/checkpoint.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <grpcpp/support/sync_stream.h>
#include <pwd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/failure.h"
#include "cli/checkpoint/private_key.h"
#include "cli/checkpoint/progress.h"
#include "cli/ferryd/local_ferryd.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/live/events.h"
#include "cli/live/interrupts.h"
#include "cli/live/live_line.h"
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

// The user has given it up.
class GivenUp : public Failure {
 public:
  using Failure::Failure;
};

// What one call shows on its way.
class Call {
 public:
  // `what`: "checkpoint".
  Call(std::string what, bool events)
      : what_(std::move(what)),
        events_(events),
        line_(!events),
        interrupts_(what_, [](std::uint64_t id, v1::CancelRequest* request) {
          request->add_attempts(id);
        }) {}

  // Reads to the end. `end`: the last phase of --events. Throws Failure.
  template <typename Event, typename Report>
  void follow(grpc::ClientReader<Event>& reader, const std::string& end, Report* report) {
    bool has_begun = false;
    for (Event event; reader.Read(&event);) {
      if (event.has_report()) *report = event.report();
      if (!event.has_progress()) continue;
      has_begun = true;
      tell(event.progress());
    }
    const auto status = reader.Finish();
    line_.clear();
    if (events_) {
      v1::CheckpointProgress last;
      last.set_phase(status.ok() ? end : "failed");
      print_line(last, one_line(status.error_message()));
    }
    if (status.error_code() == grpc::UNAVAILABLE && has_begun) {
      throw Failure(
          fmt::format("ferryd ended in the middle of the {}; start it, then see: ferry ps", what_));
    }
    if (!status.ok() && interrupts_.are_wanted()) throw GivenUp(one_line(status.error_message()));
    throw_unless_ok(status);
  }
  bool is_interrupted() const { return interrupts_.are_wanted(); }

 private:
  void tell(const v1::CheckpointProgress& progress) {
    interrupts_.begun(progress.attempt());
    line_.show(fmt::format("{}: {} ...", what_, text_of(progress)));
    if (events_) print_line(progress, {});
  }
  static void print_line(const v1::CheckpointProgress& progress, const std::string& failure) {
    auto event = to_json(progress);
    event.erase("attempt");
    print_event(std::move(event), failure);
  }

  const std::string what_;
  const bool events_;
  LiveLine line_;
  Interrupts interrupts_;
};

// False: the user wants no other one.
bool take(const v1::CheckpointRequest& request, bool events, v1::CheckpointReport* report) {
  Call call("checkpoint", events);
  LocalFerryd ferryd;
  call.follow(*ferryd->TakeCheckpoint(ferryd.context(), request), "stored", report);
  return !call.is_interrupted();
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

int checkpoint(v1::CheckpointRequest request, bool json, bool events) {
  request.set_directory(absolute(request.directory()));
  v1::CheckpointReport report;
  take(request, events, &report);
  if (json) {
    fmt::print("{}\n", to_json(report).dump(2));
  } else {
    print(request, report);
  }
  return 0;
}

int checkpoint_every(v1::CheckpointRequest request, std::chrono::seconds interval, bool json,
                     bool events) {
  request.set_directory(absolute(request.directory()));
  LiveLine line(!events);
  bool is_first = true;
  for (int in_vain = 0;; is_first = false) {
    const auto next = std::chrono::steady_clock::now() + interval;
    const auto next_by_clock = std::chrono::system_clock::now() + interval;
    line.clear();
    try {
      v1::CheckpointReport report;
      const bool are_others_wanted = take(request, events, &report);
      in_vain = 0;
      if (json) {
        fmt::print("{}\n", to_json(report).dump());
      } else {
        print(request, report);
      }
      std::fflush(stdout);
      if (!are_others_wanted) return 0;
    } catch (const GivenUp&) {
      throw;
    } catch (const Failure& failure) {
      if (is_first || ++in_vain == kMostInVain) throw;
      fmt::print(stderr, "ferry: {}; the next checkpoint is tried {} s after this one\n",
                 failure.what(), interval.count());
    }
    line.show(fmt::format("the next checkpoint begins at {:%T} ...",
                          fmt::localtime(std::chrono::system_clock::to_time_t(next_by_clock))));
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

void complete(v1::RestartRequest* request, const std::string& key) {
  request->set_directory(absolute(request->directory()));
  if (!key.empty()) request->set_content_key(unwrapped_key(key, request));
}

void print_restart(const v1::RestartReport& report) {
  fmt::print("checkpoint {} goes on: {}\n", report.id(), names_of(report));
  for (const auto& file : report.kept_aside()) {
    fmt::print("{} has what was written after the checkpoint\n", file);
  }
}

int restart(v1::RestartRequest request, const std::string& key, bool json, bool events) {
  complete(&request, key);
  v1::RestartReport report;
  {
    Call call("restart", events);
    LocalFerryd ferryd;
    const auto reader = ferryd->RestartCheckpoint(ferryd.context(), request);
    store::wipe(request.mutable_content_key());
    call.follow(*reader, "restarted", &report);
  }
  if (json) {
    fmt::print("{}\n", to_json(report).dump(2));
  } else {
    print_restart(report);
  }
  return 0;
}

}  // namespace ferry::cli
