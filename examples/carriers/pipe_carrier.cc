// The pipe, by libferry-pipe.so.

#include <ferry/pd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "channel.h"
#include "events.h"
#include "failure.h"
#include "pipe_calls.h"

namespace carriers {
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

  void* buffer() override { return next(true); }

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

  std::size_t read_some(void* data, std::size_t most) override {
    const ssize_t got = pd_recv_into_timed(sid_, data, most, kForEver);
    if (got < 0) give_up("pd_recv_into");
    return static_cast<std::size_t>(got);
  }

  void write(const void* data, std::size_t size) override {
    std::memcpy(next(true), data, size);
    send(size);
  }

  void read(void* data, std::size_t size) override {
    for (std::size_t at = 0; at < size;) {
      const std::size_t got = read_some(static_cast<char*>(data) + at, size - at);
      if (got == 0) give_up_plainly("the peer has ended");
      at += got;
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
  Pipe(int ring, int patience) : ring_(ring), patience_(patience) { begin_pipe(); }
  ~Pipe() override { pd_release(); }

  void listen(const std::string& where, int backlog) override {
    listener_ = listen_by_pipe(where, backlog, ring_);
  }
  std::unique_ptr<Channel> accept(std::size_t message) override {
    return make(
        patience_ != 0 ? accept_only_by_pipe(listener_, patience_) : accept_by_pipe(listener_, 0),
        message);
  }
  std::unique_ptr<Channel> connect(const std::string& where, std::size_t message) override {
    return make(connect_by_pipe(where, patience_, ring_), message);
  }
  std::unique_ptr<Poller> poller() override { return std::make_unique<PipePoller>(); }

 private:
  std::unique_ptr<Channel> make(int sid, std::size_t message) const {
    return std::make_unique<PipeChannel>(sid, message, static_cast<std::size_t>(ring_));
  }
  const int ring_, patience_;
  int listener_ = -1;
};

}  // namespace

std::unique_ptr<Carrier> make_pipe(int ring_size, int patience) {
  return std::make_unique<Pipe>(ring_size, patience);
}

}  // namespace carriers
