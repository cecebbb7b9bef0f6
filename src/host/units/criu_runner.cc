#include "host/units/criu_runner.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "agent/protocol.h"
#include "base/failure.h"
#include "base/unique_fd.h"
#include "host/proc/environment.h"
#include "host/proc/process_tree.h"
#include "host/proc/subprocess.h"

namespace ferry::host {
namespace {

constexpr unsigned kNoRoom = 2;  // blocks: a file system with so few of them is full
// CRIU leads a session, whose id is CRIU's own process id. When the program has a process or thread
// of that id, CRIU gives up with these words before it restores anything; the next CRIU gets
// another process id.
constexpr char kSessionTaken[] = "intersects with pid";
constexpr int kRestoreTries = 4;
// How much CRIU writes to its log: errors and warnings, or all that it does, with the time.
constexpr char kTellsTroubles[] = "-v2", kTellsAll[] = "-v4";

// What a line of CRIU's log says, if it is about an error:
//   (00.012345)  123: Error (criu/files-reg.c:2222): File /x has bad size
// with -v2 and less without the time.
std::optional<std::string_view> error_of_line(std::string_view line) {
  const auto drop = [&](std::size_t count) { line.remove_prefix(std::min(count, line.size())); };
  if (line.starts_with("(")) drop(line.find_first_not_of("0123456789.", 1) + 1);
  drop(line.find_first_not_of(' '));
  if (const auto digits = line.find_first_not_of("0123456789");
      digits > 0 && digits != line.npos && line.substr(digits).starts_with(": ")) {
    drop(digits + 2);
  }
  if (!line.starts_with("Error ")) return std::nullopt;
  drop(6);
  if (const auto place = line.find("): "); line.starts_with("(") && place != line.npos) {
    drop(place + 3);
  }
  return line;
}

}  // namespace

CriuRunner::CriuRunner(Paths paths) : paths_(std::move(paths)) {}

std::string CriuRunner::unusable() {
  std::lock_guard lock(mutex_);
  if (!looked_ || !problem_.empty()) problem_ = find_problem();
  looked_ = true;
  return problem_;
}

std::string CriuRunner::find(const std::string& wanted) {
  const std::string ours = "/opt/ferry/bin/criu";  // where ferry-get-criu puts one that works
  return wanted == "criu" && ::access(ours.c_str(), F_OK) == 0 ? ours : wanted;
}

std::string CriuRunner::missing() const {
  const Outcome version = run({{paths_.criu, "--version"}, {}, {}}, std::chrono::seconds(10));
  if (version.status == 127) {
    return fmt::format("CRIU is missing ({}); run ferry-get-criu, or give --criu PATH",
                       paths_.criu);
  }
  const int number = parse_criu_version(version.out);
  if (number < kMinimumVersion) {
    return fmt::format(
        "{} is {}, and 4.2 or later is needed; run ferry-get-criu, or give --criu PATH",
        paths_.criu,
        number == 0 ? "no CRIU" : fmt::format("CRIU {}.{}", number / 10000, number / 100 % 100));
  }
  const std::string plugin = paths_.plugin_folder + "/ferry_plugin.so";
  for (const auto& file : {plugin, paths_.action_script, paths_.dump_library}) {
    if (::access(file.c_str(), R_OK) != 0) {
      return fmt::format("{} is missing; build or install Ferry again", file);
    }
  }
  return {};
}

std::string CriuRunner::find_problem() const {
  if (auto problem = missing(); !problem.empty()) return problem;
  const Outcome check = run({{paths_.criu, "check"}, {}, {}}, std::chrono::seconds(30));
  if (!check.ok())
    return fmt::format("CRIU does not work here ({}); see: criu check", one_line(check.err));
  return {};
}

std::vector<std::string> CriuRunner::environment(std::uint64_t move_id) const {
  return {"FERRYD_SOCKET=" + paths_.control_socket, fmt::format("FERRY_MOVE_ID={}", move_id)};
}

std::vector<std::string> CriuRunner::dump_variables(const std::string& left_out) const {
  std::vector<std::string> variables{"LD_PRELOAD=" + paths_.dump_library};
  if (!left_out.empty()) variables.push_back("FERRY_LEFT_OUT=" + left_out);
  return variables;
}

std::string CriuRunner::dump(const Dump& dump, std::atomic<pid_t>* criu) {
  Command command{
      {paths_.criu, "dump", "--tree", std::to_string(dump.root), "--images-dir", dump.images,
       "--tcp-established", "--manage-cgroups=ignore", "--network-lock", "skip", "--shell-job",
       "--libdir", paths_.plugin_folder, "--action-script", paths_.action_script,
       dump.tells_all ? kTellsAll : kTellsTroubles, "--log-file", "dump.log"},
      environment(dump.move_id),
      {}};
  if (!dump.netns.empty()) {
    struct stat status {};
    if (::stat(dump.netns.c_str(), &status) != 0) {
      return fmt::format("no network namespace {}: {}", dump.netns, error_text(errno));
    }
    command.argv.insert(command.argv.end(),
                        {"--external", fmt::format("net[{}]:ferry-net", status.st_ino)});
  }
  for (const auto& name : dump.external) {
    command.argv.insert(command.argv.end(), {"--external", name});
  }
  for (auto& variable : dump_variables(dump.left_out)) {
    command.environment.push_back(std::move(variable));
  }
  const pid_t pid = start(command, dump.images + "/criu.out");
  if (pid < 0) return fmt::format("cannot start {}: {}", paths_.criu, error_text(-pid));
  *criu = pid;
  const int status = wait_for(pid);
  *criu = 0;
  if (status == 0) return {};
  return failure_of_criu("dump", status, dump.images);
}

std::string CriuRunner::restore(const Restore& restore, std::atomic<pid_t>* criu) {
  Command command{{paths_.criu, "restore", "--images-dir", restore.images, "--restore-detached",
                   "--shell-job", "--tcp-established", "--manage-cgroups=ignore", "--libdir",
                   paths_.plugin_folder, "--action-script", paths_.action_script,
                   restore.tells_all ? kTellsAll : kTellsTroubles, "--log-file", "restore.log"},
                  environment(restore.move_id),
                  {}};
  // A program whose session leader, a shell, stayed behind is in CRIU's session afterwards.
  command.own_session = true;
  if (restore.without_memory) command.argv.push_back("--lazy-pages");
  const auto inherit = [&command](int descriptor, const std::string& id) {
    command.descriptors.push_back(descriptor);
    command.argv.insert(
        command.argv.end(),
        {"--inherit-fd", fmt::format("fd[{}]:{}", 2 + command.descriptors.size(), id)});
  };
  UniqueFd netns;
  if (!restore.netns.empty()) {
    netns.reset(::open(restore.netns.c_str(), O_RDONLY | O_CLOEXEC));
    if (!netns) {
      return fmt::format("no network namespace {}: {}", restore.netns, error_text(errno));
    }
    inherit(netns.get(), "ferry-net");
  }
  for (const auto& inherited : restore.inherited) inherit(inherited.descriptor, inherited.id);
  std::string failure;
  for (int tries = 0; tries < kRestoreTries; ++tries) {
    const pid_t pid = start(command, restore.images + "/criu.out");
    if (pid < 0) return fmt::format("cannot start {}: {}", paths_.criu, error_text(-pid));
    *criu = pid;
    const int status = wait_for(pid);
    *criu = 0;
    if (status == 0) return {};
    failure = failure_of_criu("restore", status, restore.images);
    if (failure.find(kSessionTaken) == failure.npos) break;
  }
  return failure;
}

void kill_scripts(pid_t criu) {
  for (const pid_t pid : process_tree(criu)) {
    if (Environment(pid).get("CRTOOLS_SCRIPT_ACTION")) ::kill(pid, SIGKILL);
  }
}

std::string failure_of_criu(const std::string& command, int status, const std::string& images) {
  struct statvfs room {};
  if (::statvfs(images.c_str(), &room) == 0 && room.f_bavail < kNoRoom) {
    return fmt::format("there is no room left in {}; make some, or give another --image-dir",
                       images);
  }
  const std::string error = error_of_log(fmt::format("{}/{}.log", images, command));
  return error.empty() ? fmt::format("criu {} ended with status {}", command, status) : error;
}

int parse_criu_version(const std::string& output) {
  const std::size_t version = output.find("Version: ");
  int major = 0, minor = 0, patch = 0;
  if (version == output.npos ||
      std::sscanf(output.c_str() + version, "Version: %4d.%4d.%4d", &major, &minor, &patch) < 2) {
    return 0;
  }
  return major * 10000 + minor * 100 + patch;
}

std::string error_of_log(const std::string& path) {
  std::ifstream in(path);
  std::string first, ending;
  const auto is_ending = [](const std::string& text) {
    return text.starts_with("exited, status=") || text.starts_with("killed by signal ");
  };
  for (std::string line; std::getline(in, line);) {
    const auto error = error_of_line(line);
    if (!error) continue;
    const std::string text(*error);
    // The first error is the cause; the others tell how CRIU gave up. A limit that cannot be raised
    // is no error. When the first one tells how a command ended, the next one tells what that was
    // for.
    if (text.find("RLIMIT_NOFILE") != std::string::npos) continue;
    if (first.empty()) {
      first = text;
    } else if (ending.empty() && is_ending(first)) {
      ending = std::exchange(first, text);
    }
  }
  return ending.empty() ? first : fmt::format("{} ({})", first, ending);
}

}  // namespace ferry::host
