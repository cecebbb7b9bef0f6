#include "host/proc/silence.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/failure.h"
#include "base/log.h"
#include "host/proc/process_tree.h"
#include "host/proc/tcp_sockets.h"

namespace ferry::host {

// In repair mode, in which CRIU restores sockets, a socket sends neither FIN nor RST when it is
// closed.
void silence(pid_t root) {
  halt_tree(root);
  for (const pid_t pid : process_tree(root)) {
    for (const auto& socket : tcp_sockets_of(pid)) {
      constexpr int kOn = 1;
      if (::setsockopt(socket.get(), IPPROTO_TCP, TCP_REPAIR, &kOn, sizeof kOn) == 0) continue;
      log::warn("a TCP connection of a copy that is given up will be closed: {}",
                error_text(errno));
    }
  }
}

}  // namespace ferry::host
