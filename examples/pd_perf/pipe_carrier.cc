// The pipe, by libferry-pipe.so.

#include <ferry/pd.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "channel.h"
#include "events.h"

namespace pd_perf {
namespace {

constexpr int kForEver = -1;

class PipeChannel : public Channel {
 public:
  PipeChannel(int sid, std::size_t message, std::size_t ring) : sid_(sid) {
    // Two halves: one is written and sent while the other is on its way.
    count_ = std::clamp<std::size_t>(ring / 2 / std::max<std::size_t>(message, 64), 2, 256) &
             ~std::size_t{1};
    for (std::size_t number = 0; number < count_; ++number) {
      void* buffer = pd_malloc_for(sid, std::max<std::size_t>(message, 64));
      if (buffer == nullptr) give_up("pd_malloc");
      buffers_.push_back(buffer);
    }
  }
  ~PipeChannel() override { pd_close(sid_); }

  void send(std::size_t size) override {
    if (pd_send_timed(sid_, next(true), size, kForEver) != static_cast<ssize_t>(size))
      give_up("pd_send");
    ++at_;
  }

  std::size_t try_send(std::size_t size) override {
    void* buffer = next(false);
    if (buffer == nullptr) return 0;
    const ssize_t sent = pd_send(sid_, buffer, size);
    if (sent < 0 && errno == EAGAIN) return 0;
    if (sent < 0) give_up("pd_send");
    ++at_;
    return static_cast<std::size_t>(sent);
  }

  std::size_t receive(std::size_t most) override {
    void* data = nullptr;
    const ssize_t got = pd_recv_timed(sid_, most, &data, kForEver);
    if (got < 0 || pd_recv_done(sid_, static_cast<std::size_t>(got)) != 0) give_up("pd_recv");
    return static_cast<std::size_t>(got);
  }

  bool try_receive(std::size_t most, std::size_t* got) override {
    void* data = nullptr;
    const ssize_t some = pd_recv(sid_, most, &data);
    if (some < 0 && errno == EAGAIN) return false;
    if (some < 0 || pd_recv_done(sid_, static_cast<std::size_t>(some)) != 0) give_up("pd_recv");
    *got = static_cast<std::size_t>(some);
    return true;
  }

  void write(const void* data, std::size_t size) override {
    void* buffer = next(true);
    std::memcpy(buffer, data, size);
    if (pd_send_timed(sid_, buffer, size, kForEver) != static_cast<ssize_t>(size))
      give_up("pd_send");
    ++at_;
  }

  void read(void* data, std::size_t size) override {
    for (std::size_t at = 0; at < size;) {
      const ssize_t got =
          pd_recv_into_timed(sid_, static_cast<char*>(data) + at, size - at, kForEver);
      if (got <= 0) give_up("pd_recv_into");
      at += static_cast<std::size_t>(got);
    }
  }

  void finish_sending() override { pd_shutdown(sid_, SHUT_WR); }

  int sid() const { return sid_; }

 private:
  // The next buffer; null where it is on its way, and `wait` is false.
  void* next(bool wait) {
    const std::size_t half = count_ / 2, index = at_ % count_;
    if (index % half == 0 && at_ >= count_ && refreshed_ != at_) {
      std::array<void*, 128> checked;
      std::copy_n(buffers_.begin() + static_cast<std::ptrdiff_t>(index), half, checked.begin());
      const int many = static_cast<int>(half);
      const int free = wait ? pd_buf_refresh_timed(sid_, checked.data(), many, kForEver)
                            : pd_buf_refresh(sid_, checked.data(), many);
      if (free < 0) give_up("pd_buf_refresh");
      if (free < many) return nullptr;
      refreshed_ = at_;
    }
    return buffers_[index];
  }

  const int sid_;
  std::size_t count_ = 0, at_ = 0, refreshed_ = 0;
  std::vector<void*> buffers_;
};

class PipePoller : public Poller {
 public:
  PipePoller() : epoll_(pd_epoll_create()) {
    if (epoll_ < 0) give_up("pd_epoll_create");
  }
  ~PipePoller() override { pd_epoll_close(epoll_); }

  void add(Channel& channel, std::uint32_t number, bool to_send) override {
    // Edges for sending: there is nearly always room for another send, but seldom a buffer.
    pd_epoll_event event{to_send ? PD_EPOLLOUT | PD_EPOLLET : PD_EPOLLIN, {}};
    event.data.u32 = number;
    if (pd_epoll_ctl(epoll_, PD_EPOLL_CTL_ADD, sid_of(channel), &event) != 0)
      give_up("pd_epoll_ctl");
  }
  void remove(Channel& channel) override {
    pd_epoll_ctl(epoll_, PD_EPOLL_CTL_DEL, sid_of(channel), nullptr);
  }
  std::vector<std::uint32_t> wait(int milliseconds) override {
    return ready_numbers<pd_epoll_event>(
        [&](auto* events, int most) { return pd_epoll_wait(epoll_, events, most, milliseconds); });
  }

 private:
  static int sid_of(Channel& channel) { return dynamic_cast<PipeChannel&>(channel).sid(); }
  const int epoll_;
};

class Pipe : public Carrier {
 public:
  explicit Pipe(int ring) : ring_(ring) {
    if (pd_init(nullptr, 0, 0) != 0) give_up("pd_init (is ferry-piped running?)");
  }
  ~Pipe() override { pd_release(); }

  void listen(const std::string& where, int backlog) override {
    const sockaddr_in address = parse(where);
    listener_ = make_socket();
    if (pd_bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        pd_listen(listener_, backlog) != 0) {
      give_up("pd_listen");
    }
  }
  std::unique_ptr<Channel> accept(std::size_t message) override {
    const int sid = pd_accept_timed(listener_, nullptr, nullptr, kForEver);
    if (sid < 0) give_up("pd_accept");
    return std::make_unique<PipeChannel>(sid, message, static_cast<std::size_t>(ring_));
  }
  std::unique_ptr<Channel> connect(const std::string& where, std::size_t message) override {
    const sockaddr_in address = parse(where);
    const int sid = make_socket();
    if (pd_connect_timed(sid, reinterpret_cast<const sockaddr*>(&address), sizeof address,
                         10'000) != 0) {
      give_up("pd_connect");
    }
    int carrier = PD_CARRIER_NONE;
    socklen_t size = sizeof carrier;
    pd_getsockopt(sid, PD_SOL_PIPE, PD_SO_CARRIER, &carrier, &size);
    if (carrier != PD_CARRIER_PIPE) {
      errno = EHOSTUNREACH;
      give_up("the pipe does not lead there");
    }
    return std::make_unique<PipeChannel>(sid, message, static_cast<std::size_t>(ring_));
  }
  std::unique_ptr<Poller> poller() override { return std::make_unique<PipePoller>(); }

 private:
  int make_socket() {
    const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
    if (sid < 0) give_up("pd_socket");
    if (pd_setsockopt(sid, SOL_SOCKET, SO_SNDBUF, &ring_, sizeof ring_) != 0 ||
        pd_setsockopt(sid, SOL_SOCKET, SO_RCVBUF, &ring_, sizeof ring_) != 0) {
      give_up("pd_setsockopt");
    }
    return sid;
  }
  const int ring_;
  int listener_ = -1;
};

}  // namespace

std::unique_ptr<Carrier> make_pipe(int ring_size) {
  return std::make_unique<Pipe>(ring_size);
}

}  // namespace pd_perf
