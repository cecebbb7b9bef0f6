#include "cli/detach.h"

#include <fmt/core.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "cli/ferryd/local_ferryd.h"
#include "cli/json.h"
#include "ferry.grpc.pb.h"

namespace ferry::cli {
namespace {

using Stream = grpc::ClientReaderWriter<v1::DetachStep, v1::DetachReply>;

constexpr int kSignalled =
    128;  // a shell's exit status for a command that a signal has ended, beside the signal

// Signals of the terminal are for the command, which decides what becomes of them.
class IgnoredSignals {
 public:
  IgnoredSignals() : interrupt_(::signal(SIGINT, SIG_IGN)), quit_(::signal(SIGQUIT, SIG_IGN)) {}
  ~IgnoredSignals() {
    ::signal(SIGINT, interrupt_);
    ::signal(SIGQUIT, quit_);
  }
  IgnoredSignals(const IgnoredSignals&) = delete;

 private:
  void (*interrupt_)(int);
  void (*quit_)(int);
};

// Throws Failure when the command cannot be started.
int run(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const IgnoredSignals ignored;
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t own;
  sigemptyset(&own);
  sigaddset(&own, SIGINT);
  sigaddset(&own, SIGQUIT);
  ::posix_spawnattr_setsigdefault(&attributes, &own);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, words.front(), nullptr, &attributes, words.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    throw Failure(
        fmt::format("cannot start {}: {}", printable(command.front()), error_text(error)));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
}

std::string names_of(const v1::DetachReply::Report& report) {
  std::string names;
  for (const auto& program : report.programs()) {
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", program.name(), program.pid());
  }
  return names;
}

void tell_left(const v1::DetachReply::Report& report) {
  if (report.programs().empty()) {
    fmt::print(stderr, "ferry: no program uses {}\n", report.device());
  } else {
    fmt::print(stderr, "ferry: off {}: {}\n", report.device(), names_of(report));
  }
}

void tell_back(const v1::DetachReply::Report& report) {
  for (const auto& program : report.programs()) {
    if (program.stood_still_ms() == 0) {
      fmt::print(stderr, "ferry: {} ({}) has ended\n", program.name(), program.pid());
    } else {
      fmt::print(stderr, "ferry: {} ({}) is back on {}, and stood still for {:.1f} ms\n",
                 program.name(), program.pid(), report.device(), program.stood_still_ms());
    }
  }
}

// Reads until ferryd has said that all are back. Nothing: it has ended the call, because that has taken too long.
std::optional<v1::DetachReply::Report> hear_of_return(Stream& stream) {
  v1::DetachReply reply;
  while (stream.Read(&reply)) {
    if (reply.has_back()) return reply.back();
    fmt::print(stderr, "ferry: {}\n", reply.waiting());
  }
  const grpc::Status status = stream.Finish();
  if (status.error_code() == grpc::StatusCode::CANCELLED) return std::nullopt;
  throw_unless_ok(status);
  throw Failure("ferryd has not said whether the programs are back; see: ferry ps");
}

}  // namespace

int detach(const std::string& device, std::chrono::milliseconds limit,
           const std::vector<std::string>& command, bool json) {
  LocalFerryd ferryd;
  const std::unique_ptr<Stream> stream = ferryd->Detach(ferryd.context());
  v1::DetachStep step;
  step.set_device(device);
  step.set_limit_ms(static_cast<std::uint64_t>(limit.count()));
  v1::DetachReply reply;
  if (!stream->Write(step) || !stream->Read(&reply)) {
    throw_unless_ok(stream->Finish());
    throw Failure("ferryd does not say whether the programs have left the device");
  }
  tell_left(reply.left());
  const int status = run(command);
  stream->Write(v1::DetachStep());
  stream->WritesDone();
  const auto report = hear_of_return(*stream);
  if (!report) {
    fmt::print(
        stderr,
        "ferry: the programs come back unasked: {} took longer than --limit, or ferryd was ended\n",
        printable(command.front()));
    return status != 0 ? status : 1;
  }
  tell_back(*report);
  if (json) fmt::print("{}\n", to_json(*report).dump(2));
  return status;
}

}  // namespace ferry::cli
