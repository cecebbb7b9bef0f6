// Over TCP and Unix sockets: what a port to another carrier is compared with.

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "../carriers/failure.h"
#include "../carriers/socket_calls.h"
#include "neighbours.h"

namespace ring_allreduce {
namespace {

using carriers::give_up;

class SocketNeighbours : public Neighbours {
 public:
  explicit SocketNeighbours(const Place& place)
      : rooms_{std::vector<char>(place.message), std::vector<char>(place.message)},
        scratch_(place.message) {
    const int listener = carriers::listen_by_socket(place.own, 1);
    next_ = carriers::connect_by_socket(place.next, kPatience);
    previous_ = carriers::accept_by_socket(listener, kPatience);
    ::close(listener);
    carriers::set_no_delay(next_, true);
  }
  ~SocketNeighbours() override {
    ::close(next_);
    ::close(previous_);
  }

  char* room() override { return rooms_[turn_ ^= 1].data(); }

  void exchange(const char* from, std::size_t size, const Incoming& incoming) override {
    std::size_t sent = 0, got = 0;
    while (sent < size || got < incoming.size) {
      const std::size_t before = sent + got;
      if (sent < size) sent += send_some(from + sent, size - sent);
      if (got < incoming.size) got += receive_some(incoming, got);
      if (sent + got == before) wait(sent < size, got < incoming.size);
    }
  }

 private:
  std::size_t send_some(const char* from, std::size_t size) const {
    const ssize_t sent = ::send(next_, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) give_up("send to the next rank");
    return sent < 0 ? 0 : static_cast<std::size_t>(sent);
  }

  std::size_t receive_some(const Incoming& incoming, std::size_t at) {
    char* const into = incoming.into != nullptr ? incoming.into + at : scratch_.data();
    const ssize_t got = ::recv(previous_, into, incoming.size - at, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got < 0) give_up("receive from the previous rank");
    if (got == 0) carriers::give_up_plainly("the previous rank has ended; its own words say why");
    if (incoming.into == nullptr) incoming.take(into, static_cast<std::size_t>(got));
    return static_cast<std::size_t>(got);
  }

  void wait(bool to_send, bool to_receive) const {
    pollfd both[] = {{to_send ? next_ : -1, POLLOUT, 0}, {to_receive ? previous_ : -1, POLLIN, 0}};
    if (::poll(both, 2, -1) < 0 && errno != EINTR) give_up("poll");
  }

  std::vector<char> rooms_[2], scratch_;  // one is sent while the other is written
  unsigned turn_ = 0;
  int next_ = -1, previous_ = -1;
};

}  // namespace

std::unique_ptr<Neighbours> neighbours_by_sockets(const Place& place) {
  return std::make_unique<SocketNeighbours>(place);
}

}  // namespace ring_allreduce
