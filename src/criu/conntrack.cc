// In ferry-criu-dump.so, preloaded into `criu dump`: where the kernel tracks no connections, CRIU does not search for
// them. CRIU asks for all that are tracked in the network namespace of the program. The kernel finds them by walking a
// table of all network namespaces, which takes some milliseconds while the program stands still, also if there are
// none. Then its answer to another question is the same, and comes at once: which connections are tracked no more, but
// not forgotten yet. They are among those that the kernel counts.
#include <fcntl.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

namespace {

constexpr unsigned type_of(unsigned message) {
  return NFNL_SUBSYS_CTNETLINK << 8 | message;
}

int option(int socket, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

// In the network namespace of this thread, in which CRIU has made the socket as well.
bool tracks_nothing() {
  const int file = ::open("/proc/sys/net/netfilter/nf_conntrack_count", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char count[16];
  const ssize_t size = ::read(file, count, sizeof count);
  ::close(file);
  return size == 2 && std::memcmp(count, "0\n", 2) == 0;
}

bool asks_for_all(int socket, const msghdr& message) {
  if (message.msg_iovlen != 1 || message.msg_iov[0].iov_len < sizeof(nlmsghdr)) return false;
  nlmsghdr header;
  std::memcpy(&header, message.msg_iov[0].iov_base, sizeof header);
  return header.nlmsg_type == type_of(IPCTNL_MSG_CT_GET) &&
         (header.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP &&
         header.nlmsg_len == message.msg_iov[0].iov_len &&
         option(socket, SO_DOMAIN) == AF_NETLINK &&
         option(socket, SO_PROTOCOL) == NETLINK_NETFILTER;
}

ssize_t send(int socket, const msghdr* message, int flags) {
  return ::syscall(SYS_sendmsg, socket, message, flags);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ssize_t sendmsg(int socket, const msghdr* message,
                                                                  int flags) {
  constexpr std::size_t kMost = 256;  // CRIU's question has 20 bytes
  char question[kMost];
  if (message == nullptr || !asks_for_all(socket, *message) ||
      message->msg_iov[0].iov_len > kMost || !tracks_nothing()) {
    return send(socket, message, flags);
  }
  iovec other{question, message->msg_iov[0].iov_len};
  std::memcpy(question, message->msg_iov[0].iov_base, other.iov_len);
  constexpr auto type =
      static_cast<decltype(nlmsghdr::nlmsg_type)>(type_of(IPCTNL_MSG_CT_GET_DYING));
  std::memcpy(question + offsetof(nlmsghdr, nlmsg_type), &type, sizeof type);
  msghdr asked = *message;
  asked.msg_iov = &other;
  return send(socket, &asked, flags);
}
