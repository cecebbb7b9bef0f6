#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

// What /proc tells of processes. Everything here may be outdated the moment it is returned.
namespace ferry::host {

std::vector<pid_t> all_processes();

// The process and all its descendants, parents before children; empty when there is no such
// process.
std::vector<pid_t> process_tree(pid_t root);

// Stops the process, which may be starting others, and all its descendants; none escapes. When this returns none of
// them runs, unless the kernel holds one in a call for longer than a second.
void halt_tree(pid_t root);

// Kills the process, which may be starting others, and all its descendants; none escapes, because `root` is halted
// first and ends last.
void kill_tree(pid_t root);

// Sends a signal to the process that has started then (start_time()), and to all its descendants; to no other process
// that has come by one of their ids. SIGKILL: none escapes that is a descendant when this is called.
void signal_tree(pid_t root, std::uint64_t started, int signal);

// The chain of parents, nearest first, without 0.
std::vector<pid_t> ancestors(pid_t pid);

// True for `root` itself too.
bool is_below(pid_t pid, pid_t root);

// False when the process is gone, or has ended and its parent has not noticed yet.
bool is_alive(pid_t pid);

// True when the process behind a pidfd has ended, for certain; also true for no pidfd.
bool has_ended(const UniqueFd& pidfd);

// When the process started, in clock ticks since the host did; 0 when the process is gone. Pid and start time name a
// process for as long as the host is up.
std::uint64_t start_time(pid_t pid);

// Number of the pseudoterminal that is the process's controlling terminal (/dev/tty); -1: it has
// none, or one of another kind.
int controlling_pseudoterminal(pid_t pid);

// True when a signal (SIGSTOP and its like) or a debugger holds the process.
bool is_halted(pid_t pid);

// The program's name as the kernel has it (at most 15 bytes), printable(); nothing when the process is gone.
std::optional<std::string> program_name(pid_t pid);

// The pid in the innermost pid namespace, which is the same before and after a move.
std::optional<pid_t> innermost_pid(pid_t pid);

// The process's real user id, whatever its other ids are; nothing when the process is gone.
std::optional<uid_t> user_of(pid_t pid);

// The user that all ids of a process (real, effective, saved, file system) name, if the process has
// no more rights than that user has given it, as for ptrace(2). Nothing when its user or group ids
// differ (a set-user-ID or set-group-ID program), when it has capabilities, is not dumpable, or is
// gone.
std::optional<uid_t> owner_of(pid_t pid);

// Whether the process has a capability (CAP_NET_BIND_SERVICE and the like) in effect, and in ferryd's user namespace.
bool has_capability(pid_t pid, unsigned capability);

// Resident bytes.
std::uint64_t resident_bytes(pid_t pid);
std::uint64_t resident_bytes_of_tree(pid_t root);

// Resident bytes that belong to no file.
std::uint64_t anonymous_bytes(pid_t pid);

// Inode of /proc/PID/ns/KIND ("net", "mnt", "pid"): equal for processes in the same namespace; 0
// when unknown.
std::uint64_t namespace_inode(pid_t pid, const char* kind);
// The outermost of the process's pid namespaces that is below ferryd's own: that of its container, whatever pid
// namespaces the container's processes make inside. 0 when unknown.
std::uint64_t outermost_pid_namespace(pid_t pid);

// Every process in this mount namespace with this program name.
std::vector<pid_t> processes_named(const std::string& name);

// MemAvailable of /proc/meminfo, in bytes.
std::uint64_t available_memory();

}  // namespace ferry::host
