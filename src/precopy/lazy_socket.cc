#include "precopy/lazy_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace ferry::precopy {
namespace {

constexpr char kSocket[] = "lazy-pages.socket";  // CRIU's name for it
constexpr std::int32_t kZombie = -1;
constexpr std::int32_t kRestored = 0x52535446;  // LAZY_PAGES_RESTORE_FINISHED

struct Message {
  ssize_t size = 0;
  std::int32_t word = 0;
  pid_t sender = 0;
  UniqueFd descriptor;
};

Message receive(int connection) {
  Message received;
  iovec data{&received.word, sizeof received.word};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  received.size = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  if (received.size <= 0) return received;
  for (auto* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_type == SCM_CREDENTIALS) {
      ucred sender{};
      std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
      received.sender = sender.pid;
    } else if (header->cmsg_type == SCM_RIGHTS) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
      received.descriptor.reset(descriptor);
    }
  }
  return received;
}

// By the descriptor of the folder: the path of a socket has at most 107 bytes.
UniqueFd listen_in(const std::string& directory) {
  const auto fail = [&](const std::string& what) {
    return std::runtime_error(what + directory + ": " + std::strerror(errno));
  };
  const UniqueFd folder(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) throw fail("cannot open ");
  const std::string path = "/proc/self/fd/" + std::to_string(folder.get()) + "/" + kSocket;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!listener || ::setsockopt(listener.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 4) != 0) {
    throw fail("cannot listen for criu restore in ");
  }
  return listener;
}

// At the end CRIU says goodbye, and kills what it has restored if nobody listens any more. So the message that CRIU has
// waiting, and never reads, has our end of the connection: that stays open for as long as CRIU's own, also without us.
void leave_open(int connection) {
  char byte = 0;
  iovec data{&byte, sizeof byte};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof connection)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  auto* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof connection);
  std::memcpy(CMSG_DATA(header), &connection, sizeof connection);
  ::sendmsg(connection, &message, MSG_NOSIGNAL);  // where it fails, CRIU has ended
}

}  // namespace

LazySocket::LazySocket(const std::string& directory) : listener_(listen_in(directory)) {}

int LazySocket::descriptor() const {
  if (is_over_) return -1;
  return connection_ ? connection_.get() : listener_.get();
}

std::optional<LazySocket::Process> LazySocket::take() {
  if (!connection_) {
    connection_.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const int on = 1;
    ::setsockopt(connection_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    leave_open(connection_.get());
    return std::nullopt;
  }
  Message message = receive(connection_.get());
  if (message.size <= 0) {
    is_over_ = true;
    return std::nullopt;
  }
  if (message.descriptor) {
    const auto announced = announced_.find(message.sender);
    if (announced == announced_.end()) {
      throw std::runtime_error("criu restore sends memory of a process that it has not named");
    }
    Process process{announced->second, std::move(message.descriptor)};
    announced_.erase(announced);
    return process;
  }
  if (message.size != sizeof message.word) {
    throw std::runtime_error("criu restore says something else than processes");
  }
  if (message.word == kRestored) {
    is_over_ = true;
  } else if (message.word != kZombie) {
    announced_[message.sender] = message.word;
  }
  return std::nullopt;
}

}  // namespace ferry::precopy
