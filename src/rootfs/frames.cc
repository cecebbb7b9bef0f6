#include "rootfs/frames.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ferry::rootfs {
namespace {

void send_all(int socket, const void* data, std::size_t size, int flags) {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(socket, at, size, flags | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) throw Error("cannot send", errno);
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
}

void receive_all(int socket, void* data, std::size_t size) {
  auto* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::recv(socket, at, size, MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw Error("the other end has gone", got < 0 ? errno : EPIPE);
    at += got;
    size -= static_cast<std::size_t>(got);
  }
}

}  // namespace

Error::Error(const std::string& what, int error)
    : std::runtime_error(what + ": " + std::strerror(error)), code(error) {}

void send_frame(int socket, std::span<const std::byte> content) {
  while (!content.empty()) {
    const auto piece = content.first(std::min(content.size(), kMostFrame));
    const auto length = static_cast<std::uint32_t>(piece.size());
    send_all(socket, &length, sizeof length, MSG_MORE);
    send_all(socket, piece.data(), piece.size(), 0);
    content = content.subspan(piece.size());
  }
}

void end_message(int socket) {
  const std::uint32_t none = 0;
  send_all(socket, &none, sizeof none, 0);
}

bool receive_frame(int socket, std::vector<std::byte>* content) {
  std::uint32_t length = 0;
  receive_all(socket, &length, sizeof length);
  if (length > kMostFrame) throw Error("malformed frame", EBADMSG);
  content->resize(length);
  receive_all(socket, content->data(), length);
  return length > 0;
}

bool await_message(int socket) {
  char byte = 0;
  ssize_t got = 0;
  while ((got = ::recv(socket, &byte, 1, MSG_PEEK)) < 0 && errno == EINTR) continue;
  return got > 0;
}

}  // namespace ferry::rootfs
