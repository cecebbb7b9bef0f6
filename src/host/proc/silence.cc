#include "host/proc/silence.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "host/proc/process_facts.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

// A socket in repair mode, which CRIU restores them in, sends neither FIN nor RST when it is closed.
void close_silently(const UniqueFd& process, const Descriptor& descriptor) {
  constexpr int kOn = 1;
  const UniqueFd socket(
      static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), descriptor.number, 0)));
  if (!socket) return;
  int listens = 0;
  socklen_t length = sizeof listens;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0)
    return;
  if (::setsockopt(socket.get(), IPPROTO_TCP, TCP_REPAIR, &kOn, sizeof kOn) != 0) {
    log::warn("a TCP connection of a copy that is given up will be closed: {}", error_text(errno));
  }
}

}  // namespace

void silence(pid_t root) {
  // A parent first: it starts no more children.
  for (const pid_t pid : process_tree(root)) ::kill(pid, SIGSTOP);
  for (const pid_t pid : process_tree(root)) {
    ::kill(pid, SIGSTOP);
    const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!process) continue;
    for (const auto& descriptor : descriptors_of(pid)) {
      if (descriptor.protocol.starts_with("TCP")) close_silently(process, descriptor);
    }
  }
}

}  // namespace ferry::host
