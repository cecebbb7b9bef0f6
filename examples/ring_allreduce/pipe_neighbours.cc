// Over the pipe: messages are written into the send ring, and added up from the receive ring.

#include <ferry/pd.h>

#include <algorithm>
#include <cstring>

#include "../carriers/failure.h"
#include "../carriers/pipe_calls.h"
#include "neighbours.h"

namespace ring_allreduce {
namespace {

using carriers::give_up;

constexpr int kForEver = -1;

class PipeNeighbours : public Neighbours {
 public:
  explicit PipeNeighbours(const Place& place) {
    carriers::begin_pipe();
    const int ring = static_cast<int>(std::max<std::size_t>(4 << 20, 4 * place.message));
    const int listener = carriers::listen_by_pipe(place.own, 1, ring);
    next_ = carriers::connect_by_pipe(place.next, kPatience, ring);
    previous_ = carriers::accept_only_by_pipe(listener, kPatience);
    pd_close(listener);
    for (void*& room : rooms_) {
      room = pd_malloc_for(next_, place.message);
      if (room == nullptr) give_up("pd_malloc");
    }
  }
  ~PipeNeighbours() override {
    pd_close(next_);
    pd_close(previous_);
    pd_release();
  }

  char* room() override {
    turn_ = (turn_ + 1) % 3;
    void* sent = rooms_[turn_];
    if (pd_buf_refresh_timed(next_, &sent, 1, kForEver) != 1) give_up("pd_buf_refresh");
    return static_cast<char*>(rooms_[turn_]);
  }

  void exchange(const char* from, std::size_t size, const Incoming& incoming) override {
    if (size > 0) send(from, size);
    for (std::size_t at = 0; at < incoming.size;) at += receive_some(incoming, at);
  }

 private:
  // Returns before the message is copied to the next rank. That needs room for one message in its ring.
  void send(const char* from, std::size_t size) {
    if (std::find(rooms_, rooms_ + 3, from) == rooms_ + 3) {
      from = static_cast<const char*>(std::memcpy(room(), from, size));
    }
    if (pd_send_timed(next_, from, size, kForEver) != static_cast<ssize_t>(size)) {
      give_up("send to the next rank");
    }
  }

  std::size_t receive_some(const Incoming& incoming, std::size_t at) {
    void* part = incoming.into;
    const ssize_t got =
        part != nullptr
            ? pd_recv_into_timed(previous_, incoming.into + at, incoming.size - at, kForEver)
            : pd_recv_timed(previous_, incoming.size - at, &part, kForEver);
    if (got < 0) give_up("receive from the previous rank");
    if (got == 0) carriers::give_up_plainly("the previous rank has ended; its own words say why");
    if (incoming.into == nullptr) {
      incoming.take(static_cast<const char*>(part), static_cast<std::size_t>(got));
      pd_recv_done(previous_, static_cast<std::size_t>(got));
    }
    return static_cast<std::size_t>(got);
  }

  int next_ = -1, previous_ = -1;
  void* rooms_[3]{};  // one is sent, one is written, and one is for what is sent from elsewhere
  unsigned turn_ = 0;
};

}  // namespace

std::unique_ptr<Neighbours> neighbours_by_pipe(const Place& place) {
  return std::make_unique<PipeNeighbours>(place);
}

}  // namespace ring_allreduce
