#include "host/proc/process_facts.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/unique_fd.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

// Follows the link, which may lead to a file that has no name any more.
FileFacts facts_of(const std::string& link) {
  struct statx status {};
  if (::statx(AT_FDCWD, link.c_str(), AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &status) != 0)
    return {};
  // Of a sparse file CRIU takes only the blocks that are there.
  const std::uint64_t size = std::min<std::uint64_t>(status.stx_size, status.stx_blocks * 512);
  return {status.stx_mode, status.stx_rdev_major, status.stx_rdev_minor, status.stx_nlink, size};
}

std::string target_of(const std::string& link) {
  std::error_code error;
  const auto target = std::filesystem::read_symlink(link, error);
  return error ? std::string() : target.string();
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  return names;
}

void read_info(const std::string& path, Descriptor* descriptor) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "flags:") {
      words >> std::oct >> descriptor->flags;
    } else if (key == "mnt_id:") {
      words >> descriptor->mount;
    } else if (key == "lock:") {
      descriptor->is_locked = true;
    } else if (key == "tty-index:") {
      words >> descriptor->terminal;
    } else if (key == "iff:") {
      words >> descriptor->interface;
    }
  }
}

// Asks for all UNIX sockets of the calling thread's network namespace.
UnixSockets ask_for_unix_sockets() {
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  struct {
    nlmsghdr header;
    unix_diag_req request;
  } message{};
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message.request.sdiag_family = AF_UNIX;
  message.request.udiag_states = ~0u;
  message.request.udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_PEER;
  if (!socket || ::send(socket.get(), &message, sizeof message, 0) < 0) return {};
  UnixSockets sockets;
  alignas(nlmsghdr) std::array<char, 32768> buffer;
  for (;;) {
    ssize_t left = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (left <= 0) return sockets;
    for (auto* each = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(each, left);
         each = NLMSG_NEXT(each, left)) {
      if (each->nlmsg_type != SOCK_DIAG_BY_FAMILY) return sockets;
      const auto* told = static_cast<const unix_diag_msg*>(NLMSG_DATA(each));
      auto* field = reinterpret_cast<const nlattr*>(told + 1);
      auto rest = static_cast<std::ptrdiff_t>(each->nlmsg_len - NLMSG_LENGTH(sizeof *told));
      while (rest >= NLA_HDRLEN && field->nla_len >= NLA_HDRLEN && field->nla_len <= rest) {
        const char* data = reinterpret_cast<const char*>(field) + NLA_HDRLEN;
        const std::size_t length = field->nla_len - NLA_HDRLEN;
        if (field->nla_type == UNIX_DIAG_PEER && length >= sizeof(std::uint32_t)) {
          std::uint32_t peer = 0;
          std::memcpy(&peer, data, sizeof peer);
          if (peer != 0) sockets.peers[told->udiag_ino] = peer;
        } else if (field->nla_type == UNIX_DIAG_NAME && length > 0) {
          std::string name(data, length);
          if (name[0] == '\0') {
            name[0] = '@';
          } else {
            name = name.substr(0, name.find('\0'));
            if (name.starts_with('@')) name.insert(0, "./");
          }
          sockets.names[told->udiag_ino] = std::move(name);
        }
        const std::ptrdiff_t step = NLA_ALIGN(field->nla_len);
        rest -= step;
        field = reinterpret_cast<const nlattr*>(reinterpret_cast<const char*>(field) + step);
      }
    }
  }
}

}  // namespace

std::vector<Descriptor> descriptors_of(pid_t pid) {
  std::vector<Descriptor> found;
  const std::string folder = fmt::format("/proc/{}/fd/", pid);
  for (const auto& name : names_in(folder)) {
    Descriptor descriptor;
    const std::string link = folder + name;
    descriptor.target = target_of(link);
    if (descriptor.target.empty() ||
        std::from_chars(name.data(), name.data() + name.size(), descriptor.number).ec !=
            std::errc()) {
      continue;
    }
    descriptor.file = facts_of(link);
    read_info(fmt::format("/proc/{}/fdinfo/{}", pid, name), &descriptor);
    if (S_ISSOCK(descriptor.file.mode)) {
      char protocol[64];
      const ssize_t length =
          ::getxattr(link.c_str(), "system.sockprotoname", protocol, sizeof protocol);
      if (length > 0)
        descriptor.protocol.assign(protocol, ::strnlen(protocol, std::size_t(length)));
    }
    found.push_back(std::move(descriptor));
  }
  return found;
}

std::vector<Mapping> mappings_of(pid_t pid) {
  std::vector<Mapping> found;
  std::ifstream file(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(file, line);) {
    // 7f25380bd000-7f25380be000 rw-s 00000000 00:11 2061    anon_inode:[io_uring]
    std::istringstream words(line);
    std::string rights, skipped;
    Mapping mapping;
    words >> mapping.range >> rights >> skipped >> skipped >> skipped >> std::ws;
    std::getline(words, mapping.target);
    mapping.is_shared = rights.ends_with('s');
    if (mapping.target.empty() || mapping.target[0] == '[') continue;
    mapping.file = facts_of(fmt::format("/proc/{}/map_files/{}", pid, mapping.range));
    found.push_back(std::move(mapping));
  }
  return found;
}

std::set<int> mount_ids(pid_t pid) {
  std::set<int> ids;
  std::ifstream file(fmt::format("/proc/{}/mountinfo", pid));
  for (std::string line; std::getline(file, line);) {
    int id = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), id).ec == std::errc()) {
      ids.insert(id);
    }
  }
  return ids;
}

std::vector<std::string> places_of(pid_t pid) {
  std::vector<std::string> places;
  for (const char* name : {"exe", "cwd", "root"}) {
    places.push_back(target_of(fmt::format("/proc/{}/{}", pid, name)));
  }
  return places;
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  for (const auto& name : names_in(fmt::format("/proc/{}/task", pid))) {
    pid_t thread = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), thread).ec == std::errc())
      threads.push_back(thread);
  }
  return threads;
}

pid_t tracer_of(pid_t pid) {
  for (const pid_t thread : threads_of(pid)) {
    std::ifstream file(fmt::format("/proc/{}/task/{}/status", pid, thread));
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with("TracerPid:")) continue;
      pid_t tracer = 0;
      std::istringstream(line.substr(10)) >> tracer;
      if (tracer != 0) return tracer;
      break;
    }
  }
  return 0;
}

bool is_headless(pid_t pid) {
  return !is_alive(pid) && threads_of(pid).size() > 1;
}

UnixSockets unix_sockets(pid_t pid) {
  UnixSockets sockets;
  // setns() changes one thread: a new one, which ends afterwards.
  std::thread([&] {
    const UniqueFd netns(::open(fmt::format("/proc/{}/ns/net", pid).c_str(), O_RDONLY | O_CLOEXEC));
    if (netns && ::setns(netns.get(), CLONE_NEWNET) == 0) sockets = ask_for_unix_sockets();
  }).join();
  return sockets;
}

}  // namespace ferry::host
