#include "host/proc/process_tree.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgets that C++ includes it
}

#include "base/failure.h"

namespace ferry::host {
namespace {

std::string proc_path(pid_t pid, const std::string& name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

struct Stat {
  char state = 0;
  pid_t parent = 0;       // 0: none, or the process is gone
  unsigned terminal = 0;  // device number, as of stat(2)
  std::uint64_t started = 0;
};

// The id, when the four ids in a line (real, effective, saved, file system) are the same; nothing: they differ.
std::optional<uid_t> same_id(std::istream& fields) {
  uid_t real = 0, effective = 0, saved = 0, file_system = 0;
  fields >> real >> effective >> saved >> file_system;
  if (!fields || real != effective || real != saved || real != file_system) return std::nullopt;
  return real;
}

// The name in the second field may contain blanks and parentheses.
Stat stat_of(pid_t pid) {
  std::ifstream file(proc_path(pid, "stat"));
  std::string line;
  std::getline(file, line);
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream rest(line.substr(end + 1));
  Stat stat;
  rest >> stat.state >> stat.parent;
  std::string skipped;
  const auto skip_to = [&](int first, int field) {
    for (int i = first; i < field; ++i) rest >> skipped;
  };
  skip_to(5, 7);
  rest >> stat.terminal;
  skip_to(8, 22);
  rest >> stat.started;
  return rest ? stat : Stat{};
}

// The number in the line that begins with `key`.
std::uint64_t kilobytes_in(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    std::uint64_t kilobytes = 0;
    std::istringstream(line.substr(key.size())) >> kilobytes;
    return kilobytes;
  }
  return 0;
}

pid_t parent_of(pid_t pid) {
  return stat_of(pid).parent;
}

}  // namespace

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) {
      pids.push_back(static_cast<pid_t>(std::stol(name)));
    }
  }
  return pids;
}

std::vector<pid_t> process_tree(pid_t root) {
  std::error_code ignored;
  if (root <= 0 || !std::filesystem::exists(proc_path(root, "stat"), ignored)) return {};
  std::multimap<pid_t, pid_t> children;
  for (const pid_t pid : all_processes()) children.emplace(parent_of(pid), pid);
  std::vector<pid_t> tree{root};
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const auto [begin, end] = children.equal_range(tree[i]);
    for (auto child = begin; child != end; ++child) tree.push_back(child->second);
  }
  return tree;
}

void halt_tree(pid_t root) {
  constexpr int kLooks = 1000;
  std::set<pid_t> stopped;
  bool were_halted = false;  // in the look before
  for (int look = 0; look < kLooks; ++look) {
    bool all_halted = true;
    // Parents first: then they start no more children.
    for (const pid_t pid : process_tree(root)) {
      // A process that a debugger holds gets the signal, too: it would go on without the debugger.
      const bool is_new = stopped.insert(pid).second;
      if (is_new) ::kill(pid, SIGSTOP);
      if (is_new || (is_alive(pid) && !is_halted(pid))) all_halted = false;
    }
    // A process may have started another one between the listing and its own halt: the next look finds that one.
    if (all_halted && were_halted) return;
    were_halted = all_halted;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void kill_tree(pid_t root) {
  constexpr int kLooks = 1000;
  if (root <= 0) return;
  halt_tree(root);
  for (int look = 0; look < kLooks; ++look) {
    bool all_dead = true;
    for (const pid_t pid : process_tree(root)) {
      if (pid == root || !is_alive(pid)) continue;
      all_dead = false;
      ::kill(pid, SIGKILL);
    }
    if (all_dead) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(root, SIGKILL);
}

void signal_tree(pid_t root, std::uint64_t started, int signal) {
  constexpr int kLooks = 1000, kPatience = 500;
  const UniqueFd first(::pidfd_open(root, 0));
  if (!first || start_time(root) != started) return;
  std::map<pid_t, UniqueFd> processes;
  // Halted processes start no others: then the second look in a row that finds none is the last one.
  const int needed = signal == SIGKILL ? 2 : 1;
  for (int look = 0, in_vain = 0; look < kLooks && in_vain < needed && !has_ended(first); ++look) {
    bool is_more = false;
    for (const pid_t pid : process_tree(root)) {
      const auto known = processes.find(pid);
      if (known != processes.end() && !has_ended(known->second)) {
        is_more = is_more || (signal == SIGKILL && look < kPatience && !is_halted(pid));
        continue;
      }
      UniqueFd process(::pidfd_open(pid, 0));
      // It was a descendant after it was opened, and its id was still its own then.
      if (!process || !is_below(pid, root) || has_ended(process) || has_ended(first)) continue;
      if (signal == SIGKILL) ::pidfd_send_signal(process.get(), SIGSTOP, nullptr, 0);
      processes[pid] = std::move(process);
      is_more = true;
    }
    in_vain = is_more ? 0 : in_vain + 1;
    if (is_more) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const auto& [pid, process] : processes) {
    ::pidfd_send_signal(process.get(), signal, nullptr, 0);
  }
}

std::vector<pid_t> ancestors(pid_t pid) {
  std::vector<pid_t> chain;
  for (pid_t parent = parent_of(pid); parent > 0; parent = parent_of(parent)) {
    chain.push_back(parent);
    if (parent == 1) break;
  }
  return chain;
}

bool is_below(pid_t pid, pid_t root) {
  const auto chain = ancestors(pid);
  return pid == root || std::count(chain.begin(), chain.end(), root) > 0;
}

bool is_alive(pid_t pid) {
  const char state = stat_of(pid).state;
  return state != 0 && state != 'Z' && state != 'X';
}

std::uint64_t start_time(pid_t pid) {
  return stat_of(pid).started;
}

int controlling_pseudoterminal(pid_t pid) {
  constexpr unsigned kPseudoterminal = 136;  // major number
  const dev_t device = stat_of(pid).terminal;
  return major(device) == kPseudoterminal ? static_cast<int>(minor(device)) : -1;
}

bool is_halted(pid_t pid) {
  const char state = stat_of(pid).state;
  return state == 'T' || state == 't';
}

std::optional<std::string> program_name(pid_t pid) {
  std::ifstream file(proc_path(pid, "comm"));
  std::string name;
  if (!std::getline(file, name)) return std::nullopt;
  return printable(name);
}

std::optional<pid_t> innermost_pid(pid_t pid) {
  std::ifstream file(proc_path(pid, "status"));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("NSpid:")) continue;
    std::istringstream fields(line.substr(6));
    pid_t value = 0, last = 0;
    while (fields >> value) last = value;
    if (last > 0) return last;
  }
  return std::nullopt;
}

std::optional<uid_t> user_of(pid_t pid) {
  std::ifstream file(proc_path(pid, "status"));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("Uid:")) continue;
    uid_t real = 0;
    if (std::istringstream(line.substr(4)) >> real) return real;
  }
  return std::nullopt;
}

std::optional<uid_t> owner_of(pid_t pid) {
  std::ifstream file(proc_path(pid, "status"));
  std::optional<uid_t> user;
  bool same_group = false;
  std::uint64_t capabilities = ~std::uint64_t{0};
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line.substr(line.find(':') + 1));
    if (line.starts_with("Uid:")) {
      user = same_id(fields);
    } else if (line.starts_with("Gid:")) {
      same_group = same_id(fields).has_value();
    } else if (line.starts_with("CapPrm:")) {
      fields >> std::hex >> capabilities;
    }
  }
  // A process in a user namespace of its own has its capabilities in that namespace only.
  if (namespace_inode(pid, "user") != namespace_inode(::getpid(), "user")) capabilities = 0;
  struct stat status {};  // the file is root's when the process is not dumpable
  const bool dumpable =
      ::stat(proc_path(pid, "status").c_str(), &status) == 0 && status.st_uid == user;
  if (!same_group || (capabilities != 0 && user != 0u) || !dumpable) return std::nullopt;
  return user;
}

bool has_capability(pid_t pid, unsigned capability) {
  std::ifstream file(proc_path(pid, "status"));
  std::uint64_t effective = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("CapEff:")) std::istringstream(line.substr(7)) >> std::hex >> effective;
  }
  return (effective >> capability & 1) != 0 &&
         namespace_inode(pid, "user") == namespace_inode(::getpid(), "user");
}

std::uint64_t resident_bytes(pid_t pid) {
  std::ifstream file(proc_path(pid, "statm"));
  std::uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return file ? resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

std::uint64_t resident_bytes_of_tree(pid_t root) {
  std::uint64_t sum = 0;
  for (const pid_t pid : process_tree(root)) sum += resident_bytes(pid);
  return sum;
}

std::uint64_t anonymous_bytes(pid_t pid) {
  return kilobytes_in(proc_path(pid, "status"), "RssAnon:") * 1024;
}

bool has_ended(const UniqueFd& pidfd) {
  pollfd end{pidfd.get(), POLLIN, 0};
  return !pidfd || ::poll(&end, 1, 0) != 0;
}

std::uint64_t namespace_inode(pid_t pid, const char* kind) {
  struct stat status {};
  if (::stat(proc_path(pid, std::string("ns/") + kind).c_str(), &status) != 0) return 0;
  return status.st_ino;
}

std::uint64_t outermost_pid_namespace(pid_t pid) {
  const std::uint64_t ours = namespace_inode(::getpid(), "pid");
  std::uint64_t outermost = namespace_inode(pid, "pid");
  UniqueFd space(::open(proc_path(pid, "ns/pid").c_str(), O_RDONLY | O_CLOEXEC));
  while (space && outermost != ours) {
    UniqueFd parent(::ioctl(space.get(), NS_GET_PARENT));
    struct stat status {};
    if (!parent || ::fstat(parent.get(), &status) != 0 || status.st_ino == ours) break;
    outermost = status.st_ino;
    space = std::move(parent);
  }
  return outermost;
}

std::vector<pid_t> processes_named(const std::string& name) {
  const std::uint64_t mounts = namespace_inode(::getpid(), "mnt");
  std::vector<pid_t> found;
  for (const pid_t pid : all_processes()) {
    if (program_name(pid) == name.substr(0, 15) && namespace_inode(pid, "mnt") == mounts) {
      found.push_back(pid);
    }
  }
  return found;
}

std::uint64_t available_memory() {
  return kilobytes_in("/proc/meminfo", "MemAvailable:") * 1024;
}

}  // namespace ferry::host
