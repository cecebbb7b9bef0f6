// TCP and Unix sockets, beside which the pipe is measured.

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "channel.h"
#include "events.h"
#include "failure.h"
#include "socket_calls.h"

namespace carriers {
namespace {

class SocketChannel : public Channel {
 public:
  SocketChannel(int socket, std::size_t message)
      : socket_(socket), buffer_(std::max<std::size_t>(message, std::size_t{1} << 18)) {}
  ~SocketChannel() override { ::close(socket_); }

  void send(std::size_t size) override { write(buffer_.data(), size); }
  void* buffer() override { return buffer_.data(); }
  std::size_t try_send(std::size_t size) override {
    const ssize_t sent = ::send(socket_, buffer_.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN) give_up("send");
    return sent < 0 ? 0 : static_cast<std::size_t>(sent);
  }
  std::size_t receive(std::size_t most) override {
    const ssize_t got = ::recv(socket_, buffer_.data(), std::min(most, buffer_.size()), 0);
    if (got < 0) give_up("recv");
    return static_cast<std::size_t>(got);
  }
  bool try_receive(std::size_t most, std::size_t* got) override {
    const ssize_t some =
        ::recv(socket_, buffer_.data(), std::min(most, buffer_.size()), MSG_DONTWAIT);
    if (some < 0 && errno == EAGAIN) return false;
    if (some < 0) give_up("recv");
    *got = static_cast<std::size_t>(some);
    return true;
  }
  std::size_t read_some(void* data, std::size_t most) override {
    const ssize_t got = ::recv(socket_, data, most, 0);
    if (got < 0) give_up("recv");
    return static_cast<std::size_t>(got);
  }
  void write(const void* data, std::size_t size) override {
    for (std::size_t at = 0; at < size;) {
      const ssize_t sent =
          ::send(socket_, static_cast<const char*>(data) + at, size - at, MSG_NOSIGNAL);
      if (sent < 0) give_up("send");
      at += static_cast<std::size_t>(sent);
    }
  }
  void read(void* data, std::size_t size) override {
    if (::recv(socket_, data, size, MSG_WAITALL) != static_cast<ssize_t>(size)) give_up("recv");
  }
  void finish_sending() override { ::shutdown(socket_, SHUT_WR); }
  int socket() const { return socket_; }

 private:
  const int socket_;
  std::vector<char> buffer_;
};

class KernelPoller : public Poller {
 public:
  KernelPoller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}
  ~KernelPoller() override { ::close(epoll_); }
  void add(Channel& channel, std::uint32_t number, bool to_send) override {
    epoll_event event{};
    event.events = to_send ? EPOLLOUT : EPOLLIN;
    event.data.u32 = number;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket_of(channel), &event);
  }
  void remove(Channel& channel) override {
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, socket_of(channel), nullptr);
  }
  std::vector<std::uint32_t> wait(int milliseconds) override {
    return ready_numbers<epoll_event>(
        [&](auto* events, int most) { return ::epoll_wait(epoll_, events, most, milliseconds); });
  }

 private:
  static int socket_of(Channel& channel) { return dynamic_cast<SocketChannel&>(channel).socket(); }
  const int epoll_;
};

class Sockets : public Carrier {
 public:
  Sockets(bool no_delay, int patience) : no_delay_(no_delay), patience_(patience) {}

  void listen(const std::string& where, int backlog) override {
    listener_ = listen_by_socket(where, backlog);
  }
  std::unique_ptr<Channel> accept(std::size_t message) override {
    return make(accept_by_socket(listener_, patience_), message);
  }
  std::unique_ptr<Channel> connect(const std::string& where, std::size_t message) override {
    return make(connect_by_socket(where, patience_), message);
  }
  std::unique_ptr<Poller> poller() override { return std::make_unique<KernelPoller>(); }

 private:
  std::unique_ptr<Channel> make(int socket, std::size_t message) const {
    set_no_delay(socket, no_delay_);
    return std::make_unique<SocketChannel>(socket, message);
  }
  const bool no_delay_;
  const int patience_;
  int listener_ = -1;
};

}  // namespace

std::unique_ptr<Carrier> make_sockets(bool no_delay, int patience) {
  return std::make_unique<Sockets>(no_delay, patience);
}

}  // namespace carriers
