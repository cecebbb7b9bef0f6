#include "host/units/obstacles.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/failure.h"
#include "base/kept_library.h"
#include "host/proc/process_tree.h"
#include "host/units/outward.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kSecondLook{100};
constexpr std::size_t kMostNames = 1 << 20;     // bytes of names that a host is asked for
constexpr std::uint64_t kGhostLimit = 1 << 20;  // bytes of a deleted file, CRIU's own
constexpr std::string_view kDeleted = " (deleted)";
constexpr unsigned kDevTtyMajor = 5;

template <std::size_t N>
bool is_one_of(std::string_view text, const std::array<std::string_view, N>& known) {
  return std::find(known.begin(), known.end(), text) != known.end();
}

bool is_known_anonymous(std::string_view target) {
  static constexpr std::array<std::string_view, 8> kKnown{"[eventfd]", "[eventpoll]", "[signalfd]",
                                                          "[timerfd]", "[fanotify]",  "inotify",
                                                          "[inotify]", "[pidfd]"};
  return is_one_of(target, kKnown);
}

bool is_known_protocol(std::string_view protocol) {
  static constexpr std::array<std::string_view, 14> kKnown{
      "UNIX", "UNIX-STREAM", "TCP",       "TCPv6", "UDP",    "UDPv6",   "UDP-Lite",
      "RAW",  "RAWv6",       "UDPLITEv6", "PING",  "PINGv6", "NETLINK", "PACKET"};
  return is_one_of(protocol, kKnown);
}

// Terminals are left to CRIU: which of them it takes depends on more than their numbers.
bool may_know_device(unsigned major, unsigned minor) {
  constexpr unsigned kMemory = 1, kTty = 4, kMisc = 10, kFirstSerial = 64, kTun = 200,
                     kAutofs = 235;
  if (major == kMisc) return minor == kTun || minor == kAutofs;
  if (major == kTty) return minor < kFirstSerial;
  return major == kMemory || major == 2 || major == 3 || major == 5 ||
         (major >= 128 && major <= 143) || major == 188 || major == 204;
}

// True for a file of a mount; false for files without a name, which the kernel shows as paths too.
bool is_named(std::string_view target) {
  return target.starts_with('/') && !target.starts_with("/memfd:") &&
         !target.starts_with("/SYSV") && !target.starts_with("/dev/zero") &&
         !target.starts_with("/[aio]") && !target.starts_with("/anon_hugepage");
}

std::string obstacle_in_deleted(const std::string& target, const FileFacts& file) {
  if (!S_ISREG(file.mode) || !is_named(target) || !target.ends_with(kDeleted)) return {};
  if (file.links > 0) return "was deleted, but lives on under another name";
  if (file.size > kGhostLimit) return "was deleted, and CRIU takes deleted files of 1 MiB at most";
  return {};
}

std::string obstacle_in_any(const std::string& target, const FileFacts& file) {
  // What of it does not move is seen when the program is asked (move/source/kernel/partners.h).
  if (target.starts_with("/dev/infiniband/uverbs") || target == "/dev/infiniband/rdma_cm" ||
      target == "anon_inode:[infinibandevent]") {
    return {};
  }
  constexpr std::string_view kAnonymous = "anon_inode:";
  if (target.starts_with(kAnonymous) &&
      !is_known_anonymous(std::string_view(target).substr(kAnonymous.size()))) {
    return "is of a kind that CRIU cannot move";
  }
  if (target.starts_with("/secretmem")) return "is secret memory, which CRIU cannot read";
  if (target.starts_with("/dev/infiniband/")) {
    return "is a service of the kernel's RDMA whose programs cannot move; start the program with "
           "ferry run --device ferry0";
  }
  if (S_ISBLK(file.mode) || (S_ISCHR(file.mode) && !may_know_device(file.major, file.minor))) {
    return fmt::format("is a device that CRIU does not know, {}:{}", file.major, file.minor);
  }
  return obstacle_in_deleted(target, file);
}

struct Namespaces {
  static constexpr std::array<const char*, 7> kKinds{
      "uts", "ipc", "user", "cgroup", "pid", "pid_for_children", "time_for_children"};
  std::array<std::uint64_t, kKinds.size()> inodes{};
  explicit Namespaces(pid_t pid) {
    for (std::size_t i = 0; i < kKinds.size(); ++i) inodes[i] = namespace_inode(pid, kKinds[i]);
  }
};

// What is found in one look at a program.
class Look {
 public:
  Look(pid_t root, OuterStreams streams)
      : files_(open_files(root)), root_(root), streams_(streams) {
    mounts_ = mount_ids(::getpid());
    for (const pid_t pid : files_.tree) mounts_.merge(mount_ids(pid));
    for (std::size_t i = 0; i < files_.tree.size(); ++i) {
      look_at_process(files_.tree[i]);
      look_at_descriptors(files_.tree[i], files_.descriptors[i]);
      look_at_memory(files_.tree[i]);
    }
    look_outward();
  }

  const std::vector<std::string>& found() const { return found_; }

 private:
  static std::string name_of(const Descriptor& descriptor) {
    return descriptor.protocol.empty() ? descriptor.target : descriptor.protocol + " socket";
  }

  void add(pid_t pid, const std::string& what) {
    found_.push_back(
        fmt::format("process {} ({}): {}", pid, program_name(pid).value_or("?"), what));
  }

  bool shares_ipc() const {
    return namespace_inode(root_, "ipc") == namespace_inode(::getpid(), "ipc");
  }

  void look_at_descriptors(pid_t pid, const std::vector<Descriptor>& descriptors) {
    for (const auto& descriptor : descriptors) {
      if (const auto text = obstacle_in(descriptor, mounts_); !text.empty()) {
        add(pid, fmt::format("descriptor {} ({}) {}", descriptor.number,
                             printable(name_of(descriptor)), text));
      }
    }
  }

  void look_at_memory(pid_t pid) {
    for (const auto& mapping : mappings_of(pid)) {
      if (const auto text = obstacle_in(mapping); !text.empty()) {
        add(pid,
            fmt::format("memory at {} ({}) {}", mapping.range.substr(0, mapping.range.find('-')),
                        printable(mapping.target), text));
      } else if (mapping.target.starts_with("/SYSV") && shares_ipc()) {
        add(pid, "has System V shared memory, and no IPC namespace of its own");
      }
    }
  }

  void look_at_process(pid_t pid) {
    if (const pid_t tracer = tracer_of(pid); tracer != 0) {
      add(pid, fmt::format("is traced by process {} ({}); let that go to move it", tracer,
                           program_name(tracer).value_or("?")));
    }
    if (is_headless(pid)) add(pid, "its first thread has ended, and others go on");
    if (pid == root_) return;
    const Namespaces own(pid), of_root(root_), ours(::getpid());
    for (std::size_t i = 0; i < own.inodes.size(); ++i) {
      if (own.inodes[i] != 0 && own.inodes[i] != of_root.inodes[i] &&
          own.inodes[i] != ours.inodes[i]) {
        add(pid, fmt::format("has a namespace ({}) of its own inside of the program",
                             Namespaces::kKinds[i]));
        return;
      }
    }
  }

  // /dev/tty is the controlling terminal. The end that replaces a terminal is nobody's.
  void look_at_dev_tty() {
    const auto inside = terminals_inside(files_);
    for (std::size_t i = 0; i < files_.tree.size(); ++i) {
      const int terminal = controlling_pseudoterminal(files_.tree[i]);
      if (terminal < 0 || inside.contains(static_cast<unsigned>(terminal))) continue;
      for (const auto& descriptor : files_.descriptors[i]) {
        const auto& file = descriptor.file;
        if (!S_ISCHR(file.mode) || file.major != kDevTtyMajor || file.minor != 0) continue;
        add(files_.tree[i],
            fmt::format("descriptor {} (/dev/tty) is its controlling terminal, outside of the "
                        "program; start it with setsid, so that it has none",
                        descriptor.number));
      }
    }
  }

  // Both ends of whatever connects two processes must move.
  void look_outward() {
    if (streams_ == OuterStreams::kReplaced) look_at_dev_tty();
    auto found = outward_unix_sockets(files_);
    for (auto& terminal : outward_terminals(files_)) found.push_back(std::move(terminal));
    if (streams_ != OuterStreams::kRuntimes) {
      for (auto& pipe : outward_pipes(files_)) found.push_back(std::move(pipe));
    }
    std::set<std::string> standard;
    for (const auto& outward : found) {
      if (outward.is_standard()) standard.insert(outward.id);
    }
    if (streams_ == OuterStreams::kReplaced && standard.empty()) {
      add(root_,
          "has nothing that --stdio could take: its input and output stay its own; move it "
          "without");
    }
    for (const auto& outward : found) {
      const bool is_stream = standard.contains(outward.id);
      if (is_stream && streams_ == OuterStreams::kReplaced) continue;
      add(outward.pid, text_of(outward, is_stream));
    }
  }

  std::string text_of(const Outward& outward, bool is_stream) const {
    const auto [what, way_out] = [&]() -> std::pair<std::string, std::string> {
      switch (outward.kind) {
        case Outward::Kind::kPipe:
          return {"is a pipe to " + outward.other, "give it a file or /dev/null"};
        case Outward::Kind::kTerminal:
          return {fmt::format("({}) is a terminal of {}", printable(outward.descriptor.target),
                              outward.other),
                  "start it with nohup, and its input and output in files"};
        default: return {"(UNIX socket) is connected with " + outward.other, ""};
      }
    }();
    std::string text =
        fmt::format("descriptor {} {}, outside of the program", outward.descriptor.number, what);
    if (!way_out.empty()) text += "; " + way_out;
    if (is_stream && streams_ == OuterStreams::kStay) {
      text += fmt::format("{} move it with --stdio FILE", way_out.empty() ? ";" : ", or");
    }
    return text;
  }

  const OpenFiles files_;
  const pid_t root_;
  const OuterStreams streams_;
  std::set<int> mounts_;
  std::vector<std::string> found_;
};

// Gives the first that is found in both of two looks.
std::string lasting(const std::function<std::vector<std::string>()>& look) {
  const auto first = look();
  if (first.empty()) return {};
  std::this_thread::sleep_for(kSecondLook);
  const auto second = look();
  for (const auto& obstacle : first) {
    if (std::count(second.begin(), second.end(), obstacle) > 0) return obstacle;
  }
  return {};
}

}  // namespace

std::string obstacle_in(const Descriptor& descriptor, const std::set<int>& mounts) {
  const auto& [mode, major, minor, links, size] = descriptor.file;
  if (const auto text = obstacle_in_any(descriptor.target, descriptor.file); !text.empty()) {
    return text;
  }
  if (descriptor.is_locked) return "has a file lock, which does not move along";
  if (!descriptor.interface.empty()) {
    return fmt::format("holds the interface {}, which does not move along",
                       printable(descriptor.interface));
  }
  if (!descriptor.protocol.empty() && !is_known_protocol(descriptor.protocol)) {
    return "is of a protocol that CRIU cannot move";
  }
  if (descriptor.target == "anon_inode:[pidfd]" && (descriptor.flags & O_EXCL) != 0) {
    return "is of a thread, not of a process, which CRIU cannot move";
  }
  if (descriptor.target.starts_with("pipe:") && (descriptor.flags & O_DIRECT) != 0) {
    return "is a pipe in packet mode, which CRIU cannot move";
  }
  if ((S_ISREG(mode) || S_ISDIR(mode) || S_ISCHR(mode)) && is_named(descriptor.target) &&
      !mounts.empty() && !mounts.contains(descriptor.mount)) {
    return "is of a mount that the program does not see";
  }
  return {};
}

std::string obstacle_in(const Mapping& mapping) {
  return obstacle_in_any(mapping.target, mapping.file);
}

std::string find_obstacle(pid_t root, OuterStreams streams) {
  return lasting([=] { return Look(root, streams).found(); });
}

std::set<std::string> needed_files(pid_t root) {
  std::set<std::string> files;
  std::size_t names = 0;
  const auto add = [&](const std::string& path) {
    const auto is_in = [&](std::string_view folder) { return path.starts_with(folder); };
    if (is_named(path) && !path.ends_with(kDeleted) && !is_in("/proc/") && !is_in("/sys/") &&
        (!is_in("/dev/") || is_in("/dev/shm/")) && names + path.size() < kMostNames &&
        files.insert(path).second) {
      names += path.size();
    }
  };
  const std::uint64_t mounts = namespace_inode(::getpid(), "mnt");
  for (const pid_t pid : process_tree(root)) {
    if (namespace_inode(pid, "mnt") != mounts) continue;
    for (const auto& path : places_of(pid)) add(path);
    for (const auto& mapping : mappings_of(pid)) add(mapping.target);
    for (const auto& descriptor : descriptors_of(pid)) {
      if (S_ISREG(descriptor.file.mode) || S_ISDIR(descriptor.file.mode)) add(descriptor.target);
    }
  }
  return files;
}

std::vector<std::string> missing_files(const std::vector<std::string>& files) {
  std::vector<std::string> missing;
  std::error_code error;
  for (const auto& file : files) {
    const auto status = std::filesystem::symlink_status(file, error);
    if (status.type() == std::filesystem::file_type::not_found) missing.push_back(file);
  }
  return missing;
}

std::string missing_file(const std::string& host, const std::string& file,
                         const std::string& program) {
  const auto line = fmt::format("{} has no {}, which '{}' uses", host, printable(file), program);
  if (!is_kept_library(file)) return line;
  return fmt::format(
      "{}: install there the version of Ferry with which it was started, or copy that folder there",
      line);
}

}  // namespace ferry::host
