#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

// What a process has open and mapped, as /proc tells. Outdated the moment it is returned; what
// cannot be read is left out.
namespace ferry::host {

// What is known of a file without asking for it over a network.
struct FileFacts {
  mode_t mode = 0;                // 0: unknown
  unsigned major = 0, minor = 0;  // of a device
  std::uint64_t links = 0, size = 0;
};

struct Descriptor {
  int number = -1;
  std::string target;    // where the link in /proc/PID/fd leads
  std::string protocol;  // of a socket, as the kernel calls it; empty: unknown
  unsigned flags = 0;    // of open(2)
  int mount = -1;        // the id of its mount in mountinfo
  bool is_locked = false;
  std::string interface;  // of a tun device
  int terminal = -1;      // of the master of a pseudoterminal: the slave's number
  FileFacts file;
};
std::vector<Descriptor> descriptors_of(pid_t pid);

// A range of memory that is not anonymous.
struct Mapping {
  std::string range;   // as in /proc/PID/maps
  std::string target;  // a path, or what the kernel shows instead
  bool is_shared = false;
  FileFacts file;
};
std::vector<Mapping> mappings_of(pid_t pid);

// The ids of all mounts that the process sees.
std::set<int> mount_ids(pid_t pid);

// Where the links exe, cwd and root of the process lead.
std::vector<std::string> places_of(pid_t pid);

std::vector<pid_t> threads_of(pid_t pid);

// The process that traces one of its threads; 0: none.
pid_t tracer_of(pid_t pid);

// True when the process's first thread has ended, and other threads go on.
bool is_headless(pid_t pid);

// UNIX sockets by inode. `peers`: the inode of the socket at the other end. `names`: the name to
// which a socket is bound: a path, or '@' and an abstract name of any bytes.
struct UnixSockets {
  std::map<std::uint64_t, std::uint64_t> peers;
  std::map<std::uint64_t, std::string> names;
};
// The UNIX sockets in the network namespace of the process.
UnixSockets unix_sockets(pid_t pid);

}  // namespace ferry::host
