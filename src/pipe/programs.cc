#include "pipe/programs.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "pipe/network/kernel_network.h"

namespace ferry::pipe {
namespace {

// Linux 6.5; headers of libc may be older.
constexpr int kPeerPidfd = 77;

UniqueFd process_behind(int socket, pid_t pid) {
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &pidfd, &size) == 0) return UniqueFd(pidfd);
  // The process is there as long as its socket is, unless it has given that away.
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd hung_up{socket, 0, 0};
  if (::poll(&hung_up, 1, 0) != 0) return {};
  return process;
}

}  // namespace

std::uint64_t start_of(pid_t pid) {
  std::string text;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), text);
  // The name, in parentheses, may have any characters. The time is the 22nd field, and the name the second.
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(text.substr(end + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  return fields ? std::strtoull(field.c_str(), nullptr, 10) : 0;
}

UniqueFd open_process(const Process& process) {
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pidfd || start_of(process.pid) != process.started) return {};
  return pidfd;
}

std::optional<Program> program_behind(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 ||
      credentials.pid <= 0) {
    return std::nullopt;
  }
  Program program;
  program.process = process_behind(socket, credentials.pid);
  if (!program.process) return std::nullopt;
  const std::string pids = "/proc/" + std::to_string(credentials.pid) + "/ns/pid";
  struct stat status {};
  if (::stat(pids.c_str(), &status) != 0) return std::nullopt;
  program.peer.pid = credentials.pid;
  program.peer.user = credentials.uid;
  program.peer.pid_namespace = status.st_ino;
  program.peer.started = start_of(credentials.pid);
  if (program.peer.started == 0) return std::nullopt;
  // Checks that the process is there still: so its PID namespace and its start were its own, too.
  program.peer.network = network_of(credentials.pid, program.process.get());
  if (!program.peer.network) return std::nullopt;
  return program;
}

}  // namespace ferry::pipe
