#include "host/proc/tcp_sockets.h"

#include <sys/socket.h>
#include <sys/syscall.h>

#include "host/proc/process_facts.h"

namespace ferry::host {
namespace {

bool listens(const UniqueFd& socket) {
  int listens = 0;
  socklen_t length = sizeof listens;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 &&
         listens != 0;
}

}  // namespace

std::vector<UniqueFd> tcp_sockets_of(pid_t pid) {
  std::vector<UniqueFd> sockets;
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return sockets;
  for (const auto& descriptor : descriptors_of(pid)) {
    if (!descriptor.protocol.starts_with("TCP")) continue;
    UniqueFd socket(
        static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), descriptor.number, 0)));
    if (socket && !listens(socket)) sockets.push_back(std::move(socket));
  }
  return sockets;
}

}  // namespace ferry::host
