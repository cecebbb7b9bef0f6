// What a socket does whose peer is not on the pipe.

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "pipe/library/call.h"

namespace ferry::pd {

int finish_connecting(Socket& socket) {
  if (socket.kind != Socket::Kind::kConnecting)
    return socket.kind == Socket::Kind::kTcp ? 0 : ENOTCONN;
  pollfd writable{socket.tcp.get(), POLLOUT, 0};
  if (::poll(&writable, 1, 0) == 0) return EAGAIN;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.tcp.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) {
    socket.kind = Socket::Kind::kTcp;
  } else {
    // Another pd_connect() makes another.
    forget_descriptor(socket);
    socket.kind = Socket::Kind::kFresh;
    socket.wake_watches();
  }
  return error;
}

int receive_by_tcp(Socket& socket, std::size_t length) {
  if ((socket.flags & (pipe::kEnd | pipe::kReset)) != 0) return 0;
  // No more than is asked for: what is left the kernel tells of, as of all that comes.
  const std::uint64_t room = std::min<std::uint64_t>(
      length, socket.receive_ring.size() - (socket.received - socket.given_back));
  const std::uint64_t at = socket.received % socket.receive_ring.size();
  // The ring is mapped twice: what crosses its end is in one piece here as well.
  const ssize_t got =
      room == 0 ? 0 : ::recv(socket.tcp.get(), socket.receive_ring.base() + at, room, MSG_DONTWAIT);
  if (room == 0) return EAGAIN;
  if (got > 0) {
    socket.received += static_cast<std::uint64_t>(got);
  } else if (got == 0) {
    socket.flags |= pipe::kEnd;
  } else if (errno == EAGAIN || errno == EINTR) {
    return EAGAIN;
  } else {
    socket.error = errno;
    socket.flags |= pipe::kReset;
  }
  return 0;
}

void forget_descriptor(Socket& socket) {
  {
    const std::lock_guard lock(socket.watch_mutex);
    for (const auto& watch : socket.watches) watch->has_descriptor(-1);
  }
  socket.tcp.reset();
}

void announce_descriptor(Socket& socket) {
  const std::lock_guard lock(socket.watch_mutex);
  for (const auto& watch : socket.watches) watch->has_descriptor(socket.tcp.get());
}

}  // namespace ferry::pd
