#include "migrate/obstacles.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string_view>
#include <thread>

#include "migrate/failure.h"
#include "migrate/process_tree.h"

namespace ferry::migrate {
namespace {

constexpr std::chrono::milliseconds kSecondLook{100};
constexpr std::size_t kMostNames = 1 << 20;     // bytes of names that a host is asked for
constexpr std::uint64_t kGhostLimit = 1 << 20;  // CRIU's own
constexpr unsigned kPseudoterminal = 136;       // major number, of slaves
constexpr std::string_view kDeleted = " (deleted)";

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

// Terminals are CRIU's matter: which of them it takes depends on more than their numbers.
bool may_know_device(unsigned major, unsigned minor) {
  constexpr unsigned kMemory = 1, kTty = 4, kMisc = 10, kFirstSerial = 64, kTun = 200,
                     kAutofs = 235;
  if (major == kMisc) return minor == kTun || minor == kAutofs;
  if (major == kTty) return minor < kFirstSerial;
  return major == kMemory || major == 2 || major == 3 || major == 5 ||
         (major >= 128 && major <= 143) || major == 188 || major == 204;
}

// A file of a mount, not one of those without a name that the kernel shows as paths.
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
  constexpr std::string_view kAnonymous = "anon_inode:";
  if (target.starts_with(kAnonymous) &&
      !is_known_anonymous(std::string_view(target).substr(kAnonymous.size()))) {
    return "is of a kind that CRIU cannot move";
  }
  if (target.starts_with("/secretmem")) return "is secret memory, which CRIU cannot read";
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
  explicit Look(pid_t root) : tree_(process_tree(root)), root_(root) {
    mounts_ = mount_ids(::getpid());
    for (const pid_t pid : tree_) {
      mounts_.merge(mount_ids(pid));
      descriptors_.push_back(descriptors_of(pid));
    }
    for (std::size_t i = 0; i < tree_.size(); ++i) {
      look_at_process(tree_[i]);
      for (const auto& descriptor : descriptors_[i]) {
        if (const auto text = obstacle_in(descriptor, mounts_); !text.empty()) {
          add(tree_[i], fmt::format("descriptor {} ({}) {}", descriptor.number,
                                    printable(name_of(descriptor)), text));
        }
      }
      for (const auto& mapping : mappings_of(tree_[i])) {
        if (const auto text = obstacle_in(mapping); !text.empty()) {
          add(tree_[i],
              fmt::format("memory at {} ({}) {}", mapping.range.substr(0, mapping.range.find('-')),
                          printable(mapping.target), text));
        } else if (mapping.target.starts_with("/SYSV") && shares_ipc()) {
          add(tree_[i], "has System V shared memory, and no IPC namespace of its own");
        }
      }
    }
    look_at_unix_sockets();
    look_at_terminals();
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

  // Both ends of a UNIX connection must move. Connections to us are the library's, which it leaves
  // before the stop.
  void look_at_unix_sockets() {
    std::set<std::uint64_t> ours;
    const auto add_to_ours = [&](const Descriptor& descriptor) {
      if (const auto inode = inode_of(descriptor)) ours.insert(inode);
    };
    for (const auto& descriptor : descriptors_of(::getpid())) add_to_ours(descriptor);
    for (const auto& all : descriptors_) std::for_each(all.begin(), all.end(), add_to_ours);
    std::map<std::uint64_t, UnixSockets> sockets;  // by network namespace
    for (std::size_t i = 0; i < tree_.size(); ++i) {
      for (const auto& descriptor : descriptors_[i]) {
        const auto inode = inode_of(descriptor);
        if (inode == 0) continue;
        const auto netns = namespace_inode(tree_[i], "net");
        if (!sockets.contains(netns)) sockets[netns] = unix_sockets(tree_[i]);
        const auto& here = sockets[netns];
        const auto peer = here.peers.find(inode);
        if (peer == here.peers.end() || ours.contains(peer->second)) continue;
        const auto name = here.names.find(peer->second);
        add(tree_[i],
            fmt::format("descriptor {} (UNIX socket) is connected with {}, outside of the program",
                        descriptor.number,
                        name == here.names.end() ? "a socket" : printable(name->second)));
      }
    }
  }

  // A terminal's other side, a window or sshd, stays where it is.
  void look_at_terminals() {
    std::set<unsigned> ours;  // numbers of pseudoterminals whose masters are inside
    for (const auto& all : descriptors_) {
      for (const auto& descriptor : all) {
        if (descriptor.terminal >= 0) ours.insert(static_cast<unsigned>(descriptor.terminal));
      }
    }
    for (std::size_t i = 0; i < tree_.size(); ++i) {
      for (const auto& descriptor : descriptors_[i]) {
        const auto& file = descriptor.file;
        const bool is_terminal = S_ISCHR(file.mode) && file.major == kPseudoterminal;
        if (!is_terminal || ours.contains(file.minor)) continue;
        add(tree_[i],
            fmt::format("descriptor {} ({}) is a terminal, whose other side is outside of the "
                        "program; start it with nohup, and its input and output in files",
                        descriptor.number, printable(descriptor.target)));
        return;
      }
    }
  }

  // Of a UNIX socket; else 0.
  static std::uint64_t inode_of(const Descriptor& descriptor) {
    std::uint64_t inode = 0;
    constexpr std::string_view kSocket = "socket:[";
    if (descriptor.protocol.starts_with("UNIX") && descriptor.target.starts_with(kSocket)) {
      inode = std::stoull(descriptor.target.substr(kSocket.size()));
    }
    return inode;
  }

  const std::vector<pid_t> tree_;
  const pid_t root_;
  std::set<int> mounts_;
  std::vector<std::vector<Descriptor>> descriptors_;  // of each process of the tree
  std::vector<std::string> found_;
};

bool reads(const Descriptor& descriptor) {
  return (descriptor.flags & O_ACCMODE) != O_WRONLY;
}
bool writes(const Descriptor& descriptor) {
  return (descriptor.flags & O_ACCMODE) != O_RDONLY;
}

// What processes of a tree have open of a pipe.
struct PipeEnds {
  pid_t pid = 0;  // that was seen first
  int number = -1;
  bool reads = false, writes = false;

  bool leads_to(const Descriptor& other) const {
    return (!reads && migrate::reads(other)) || (!writes && migrate::writes(other));
  }
};

std::vector<std::string> obstacles_in_pipes(pid_t root) {
  const auto tree = process_tree(root);
  std::map<std::string, PipeEnds> pipes;  // "pipe:[4711]"
  for (const pid_t pid : tree) {
    for (const auto& descriptor : descriptors_of(pid)) {
      if (!descriptor.target.starts_with("pipe:[")) continue;
      auto& ends =
          pipes.try_emplace(descriptor.target, PipeEnds{pid, descriptor.number}).first->second;
      ends.reads |= reads(descriptor);
      ends.writes |= writes(descriptor);
    }
  }
  std::erase_if(pipes, [](const auto& pipe) { return pipe.second.reads && pipe.second.writes; });
  std::vector<std::string> found;
  if (pipes.empty()) return found;
  for (const pid_t pid : all_processes()) {
    if (std::count(tree.begin(), tree.end(), pid) > 0 || is_below(pid, root)) continue;
    for (const auto& descriptor : descriptors_of(pid)) {
      const auto pipe = pipes.find(descriptor.target);
      if (pipe == pipes.end() || !pipe->second.leads_to(descriptor)) continue;
      const PipeEnds& inside = pipe->second;
      found.push_back(fmt::format(
          "process {} ({}): descriptor {} is a pipe to process {} ({}), outside of the program; "
          "give it a file or /dev/null",
          inside.pid, program_name(inside.pid).value_or("?"), inside.number, pid,
          program_name(pid).value_or("?")));
    }
  }
  return found;
}

// The first that is found twice.
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

std::string find_obstacle(pid_t root) {
  return lasting([root] { return Look(root).found(); });
}

std::string find_obstacle_in_pipes(pid_t root) {
  return lasting([root] { return obstacles_in_pipes(root); });
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

}  // namespace ferry::migrate
