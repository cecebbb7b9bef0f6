#include "host/units/outward.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "base/failure.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

constexpr unsigned kPseudoterminal = 136;  // major device number of the slaves

// The inode of a UNIX socket; 0: it is none.
std::uint64_t unix_inode(const Descriptor& descriptor) {
  constexpr std::string_view kSocket = "socket:[";
  if (!descriptor.protocol.starts_with("UNIX") || !descriptor.target.starts_with(kSocket)) return 0;
  return std::stoull(descriptor.target.substr(kSocket.size()));
}

bool may_read(const Descriptor& descriptor) {
  return (descriptor.flags & O_ACCMODE) != O_WRONLY;
}
bool may_write(const Descriptor& descriptor) {
  return (descriptor.flags & O_ACCMODE) != O_RDONLY;
}

// Which ends of a pipe the processes of a program have open.
struct PipeEnds {
  bool reads = false, writes = false;

  bool lead_to(const Descriptor& outside) const {
    return (!reads && may_read(outside)) || (!writes && may_write(outside));
  }
};

std::string terminal_id(pid_t pid, int number) {
  struct stat status {};
  if (::stat(fmt::format("/proc/{}/fd/{}", pid, number).c_str(), &status) != 0) return {};
  return fmt::format("tty[{:x}:{:x}]", status.st_rdev, status.st_dev);
}

}  // namespace

OpenFiles open_files(pid_t root) {
  OpenFiles files{process_tree(root), {}};
  for (const pid_t pid : files.tree) files.descriptors.push_back(descriptors_of(pid));
  return files;
}

bool Outward::reads() const {
  return may_read(descriptor);
}
bool Outward::writes() const {
  return may_write(descriptor);
}

std::vector<Outward> outward_pipes(const OpenFiles& files) {
  std::map<std::string, PipeEnds> pipes;  // by target
  for (const auto& all : files.descriptors) {
    for (const auto& descriptor : all) {
      if (!descriptor.target.starts_with("pipe:[")) continue;
      auto& ends = pipes[descriptor.target];
      ends.reads |= may_read(descriptor);
      ends.writes |= may_write(descriptor);
    }
  }
  std::erase_if(pipes, [](const auto& pipe) { return pipe.second.reads && pipe.second.writes; });
  if (pipes.empty()) return {};
  std::map<std::string, std::string> others;  // by target
  const pid_t root = files.tree.front();
  for (const pid_t pid : all_processes()) {
    if (std::count(files.tree.begin(), files.tree.end(), pid) > 0 || is_below(pid, root)) continue;
    for (const auto& descriptor : descriptors_of(pid)) {
      const auto pipe = pipes.find(descriptor.target);
      if (pipe == pipes.end() || !pipe->second.lead_to(descriptor)) continue;
      others.try_emplace(descriptor.target,
                         fmt::format("process {} ({})", pid, program_name(pid).value_or("?")));
    }
  }
  std::vector<Outward> found;
  for (std::size_t i = 0; i < files.tree.size(); ++i) {
    for (const auto& descriptor : files.descriptors[i]) {
      const auto other = others.find(descriptor.target);
      if (other == others.end()) continue;
      found.push_back(
          {Outward::Kind::kPipe, files.tree[i], descriptor, other->second, descriptor.target});
    }
  }
  return found;
}

std::vector<Outward> outward_unix_sockets(const OpenFiles& files) {
  std::set<std::uint64_t> inside;
  const auto add = [&](const Descriptor& descriptor) {
    if (const auto inode = unix_inode(descriptor)) inside.insert(inode);
  };
  for (const auto& descriptor : descriptors_of(::getpid())) add(descriptor);
  for (const auto& all : files.descriptors) std::for_each(all.begin(), all.end(), add);
  std::vector<Outward> found;
  std::map<std::uint64_t, UnixSockets> sockets;  // by network namespace
  for (std::size_t i = 0; i < files.tree.size(); ++i) {
    for (const auto& descriptor : files.descriptors[i]) {
      const auto inode = unix_inode(descriptor);
      if (inode == 0) continue;
      const auto netns = namespace_inode(files.tree[i], "net");
      if (!sockets.contains(netns)) sockets[netns] = unix_sockets(files.tree[i]);
      const auto& here = sockets[netns];
      const auto peer = here.peers.find(inode);
      if (peer == here.peers.end() || inside.contains(peer->second)) continue;
      const auto name = here.names.find(peer->second);
      found.push_back({Outward::Kind::kUnix, files.tree[i], descriptor,
                       name == here.names.end() ? "a socket" : printable(name->second),
                       descriptor.target});
    }
  }
  return found;
}

std::set<unsigned> terminals_inside(const OpenFiles& files) {
  std::set<unsigned> inside;
  for (const auto& all : files.descriptors) {
    for (const auto& descriptor : all) {
      if (descriptor.terminal >= 0) inside.insert(static_cast<unsigned>(descriptor.terminal));
    }
  }
  return inside;
}

std::vector<Outward> outward_terminals(const OpenFiles& files) {
  const auto inside = terminals_inside(files);
  std::vector<Outward> found;
  for (std::size_t i = 0; i < files.tree.size(); ++i) {
    for (const auto& descriptor : files.descriptors[i]) {
      const auto& file = descriptor.file;
      const bool is_terminal = S_ISCHR(file.mode) && file.major == kPseudoterminal;
      if (!is_terminal || inside.contains(file.minor)) continue;
      found.push_back({Outward::Kind::kTerminal, files.tree[i], descriptor, "a window or sshd",
                       terminal_id(files.tree[i], descriptor.number)});
    }
  }
  return found;
}

std::vector<OuterStream> outer_streams(pid_t root) {
  const OpenFiles files = open_files(root);
  std::map<std::string, OuterStream> streams;
  std::set<std::string> standard;
  for (const auto& look : {outward_pipes, outward_unix_sockets, outward_terminals}) {
    for (const auto& outward : look(files)) {
      auto& stream =
          streams.try_emplace(outward.id, OuterStream{outward.kind, outward.id, false, false})
              .first->second;
      stream.reads |= outward.reads();
      stream.writes |= outward.writes();
      if (outward.is_standard()) standard.insert(outward.id);
    }
  }
  std::vector<OuterStream> found;
  for (const auto& id : standard) found.push_back(streams.at(id));
  return found;
}

std::string external_name(const OuterStream& stream) {
  switch (stream.kind) {
    case Outward::Kind::kUnix: return "unix" + stream.id.substr(stream.id.find('['));
    case Outward::Kind::kTerminal: return stream.id;
    default: return {};
  }
}

}  // namespace ferry::host
