#include "socket_calls.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "address.h"
#include "failure.h"
#include "retry.h"

namespace carriers {
namespace {

int make_socket(const Address& address) {
  const int socket = ::socket(address.whole.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) give_up("socket");
  return socket;
}

}  // namespace

int listen_by_socket(const std::string& where, int backlog) {
  const Address address(where);
  if (address.is_unix) ::unlink(where.c_str());
  const int listener = make_socket(address);
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener, address.get(), address.size) != 0 || ::listen(listener, backlog) != 0) {
    give_up("listen");
  }
  return listener;
}

int connect_by_socket(const std::string& where, int patience) {
  const Address address(where);
  int socket = -1;
  const bool connected = retry(patience, [&] {
    socket = make_socket(address);
    if (::connect(socket, address.get(), address.size) == 0) return Attempt::kDone;
    const int error = errno;
    ::close(socket);
    errno = error;
    return error == ECONNREFUSED || error == ENOENT ? Attempt::kLater : Attempt::kFailed;
  });
  if (!connected) give_up(("connect to " + where).c_str());
  return socket;
}

int accept_by_socket(int listener, int patience) {
  pollfd connecting{listener, POLLIN, 0};
  int ready = -1;
  do ready = ::poll(&connecting, 1, patience == 0 ? -1 : patience);
  while (ready < 0 && errno == EINTR);
  if (ready == 0) errno = ETIMEDOUT;
  if (ready <= 0) give_up("accept");
  const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (socket < 0) give_up("accept");
  return socket;
}

void set_no_delay(int socket, bool on) {
  const int value = on;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value);
}

}  // namespace carriers
