#include "pipe/library/exchange.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace ferry::pd {

std::string driver_path() {
  // Whoever starts a setuid program does not say where its driver is.
  const char* path = ::secure_getenv("FERRY_PIPE_SOCKET");
  return path == nullptr || *path == '\0' ? pipe::kDefaultSocket : path;
}

UniqueFd connect_driver(const std::string& path, bool at_once) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return {};
  std::strcpy(address.sun_path, path.c_str());
  UniqueFd socket(
      ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | (at_once ? SOCK_NONBLOCK : 0), 0));
  // systemd may listen for a ferry-piped that does not start.
  const auto limit = [&](timeval time) {
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  };
  limit({kConnectLimit.count(), 0});
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
         0) {
    if (errno != EINTR) return {};
  }
  limit({0, 0});
  if (at_once) ::fcntl(socket.get(), F_SETFL, 0);  // its answers are waited for
  return socket;
}

bool send_request(int socket, const pipe::ControlRequest& request,
                  const std::vector<int>& descriptors) {
  iovec bytes{const_cast<pipe::ControlRequest*>(&request), sizeof request};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const std::size_t size = descriptors.size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(head), descriptors.data(), size);
  }
  ssize_t done = 0;
  do {
    done = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (done < 0 && errno == EINTR);
  return done >= 0;
}

int take_answer(int socket, pipe::ControlReply* reply, std::vector<UniqueFd>* descriptors) {
  iovec bytes{reply, sizeof *reply};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t done = 0;
  do {
    done = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (done < 0 && errno == EINTR);
  if (done != sizeof *reply) return EPIPE;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= head->cmsg_len; at += sizeof(int)) {
      int received = -1;
      std::memcpy(&received, reinterpret_cast<const char*>(head) + at, sizeof received);
      UniqueFd owned(received);
      if (descriptors != nullptr) descriptors->push_back(std::move(owned));
    }
  }
  return reply->error;
}

int exchange(int socket, const pipe::ControlRequest& request, const std::vector<int>& given,
             pipe::ControlReply* reply, std::vector<UniqueFd>* descriptors) {
  if (!send_request(socket, request, given)) return EPIPE;
  return take_answer(socket, reply, descriptors);
}

}  // namespace ferry::pd
