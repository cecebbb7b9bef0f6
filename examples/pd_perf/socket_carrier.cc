// TCP and Unix sockets, beside which the pipe is measured.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "channel.h"
#include "events.h"

namespace pd_perf {
namespace {

class SocketChannel : public Channel {
 public:
  SocketChannel(int socket, std::size_t message)
      : socket_(socket), buffer_(std::max<std::size_t>(message, std::size_t{1} << 18)) {}
  ~SocketChannel() override { ::close(socket_); }

  void send(std::size_t size) override { write(buffer_.data(), size); }
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
  explicit Sockets(bool no_delay) : no_delay_(no_delay) {}

  void listen(const std::string& where, int backlog) override {
    const Address address(where);
    if (address.is_unix) ::unlink(where.c_str());
    listener_ = address.make_socket();
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(listener_, address.get(), address.size) != 0 || ::listen(listener_, backlog) != 0) {
      give_up("listen");
    }
  }
  std::unique_ptr<Channel> accept(std::size_t message) override {
    return make(::accept(listener_, nullptr, nullptr), message, "accept");
  }
  std::unique_ptr<Channel> connect(const std::string& where, std::size_t message) override {
    const Address address(where);
    const int socket = address.make_socket();
    if (::connect(socket, address.get(), address.size) != 0) give_up("connect");
    return make(socket, message, "connect");
  }
  std::unique_ptr<Poller> poller() override { return std::make_unique<KernelPoller>(); }

 private:
  struct Address {
    explicit Address(const std::string& where) : is_unix(where.find('/') != std::string::npos) {
      if (is_unix) {
        auto& un = reinterpret_cast<sockaddr_un&>(whole);
        un.sun_family = AF_UNIX;
        std::strncpy(un.sun_path, where.c_str(), sizeof un.sun_path - 1);
        size = sizeof un;
      } else {
        reinterpret_cast<sockaddr_in&>(whole) = parse(where);
        size = sizeof(sockaddr_in);
      }
    }
    int make_socket() const {
      const int socket = ::socket(whole.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (socket < 0) give_up("socket");
      return socket;
    }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&whole); }

    const bool is_unix;
    sockaddr_storage whole{};
    socklen_t size = 0;
  };

  std::unique_ptr<Channel> make(int socket, std::size_t message, const char* how) {
    if (socket < 0) give_up(how);
    const int on = no_delay_;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails for Unix sockets
    return std::make_unique<SocketChannel>(socket, message);
  }
  const bool no_delay_;
  int listener_ = -1;
};

}  // namespace

std::unique_ptr<Carrier> make_sockets(bool no_delay) {
  return std::make_unique<Sockets>(no_delay);
}

void give_up(const char* what) {
  std::fprintf(stderr, "pd_perf: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

sockaddr_in parse(const std::string& where) {
  sockaddr_in address{};
  const std::size_t colon = where.rfind(':');
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(where.substr(colon + 1).c_str())));
  if (colon == std::string::npos || address.sin_port == 0 ||
      ::inet_pton(AF_INET, where.substr(0, colon).c_str(), &address.sin_addr) != 1) {
    errno = EINVAL;
    give_up("an address is as 10.0.0.2:5000");
  }
  return address;
}

}  // namespace pd_perf
