// Over TCP by io_uring: the send and the receive of an exchange are one system call.

#include <liburing.h>
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

class UringNeighbours : public Neighbours {
 public:
  explicit UringNeighbours(const Place& place)
      : rooms_{std::vector<char>(place.message), std::vector<char>(place.message)},
        scratch_(place.message) {
    if (const int error = ::io_uring_queue_init(8, &ring_, 0); error < 0) {
      errno = -error;
      give_up(
          "this kernel refuses io_uring (sysctl kernel.io_uring_disabled=0, or another --over)");
    }
    const int listener = carriers::listen_by_socket(place.own, 1);
    next_ = carriers::connect_by_socket(place.next, kPatience);
    previous_ = carriers::accept_by_socket(listener, kPatience);
    ::close(listener);
    carriers::set_no_delay(next_, true);
  }
  ~UringNeighbours() override {
    ::io_uring_queue_exit(&ring_);
    ::close(next_);
    ::close(previous_);
  }

  char* room() override { return rooms_[turn_ ^= 1].data(); }

  void exchange(const char* from, std::size_t size, const Incoming& incoming) override {
    char* const into = incoming.into != nullptr ? incoming.into : scratch_.data();
    Transfer out{const_cast<char*>(from), size, true}, in{into, incoming.size, false};
    submit(out);
    submit(in);
    while (out.left > 0 || in.left > 0) {
      const int submitted = ::io_uring_submit_and_wait(&ring_, 1);
      if (submitted < 0 && submitted != -EINTR) {
        errno = -submitted;
        give_up("io_uring_submit_and_wait");
      }
      io_uring_cqe* done = nullptr;
      while (::io_uring_peek_cqe(&ring_, &done) == 0) {
        complete(*static_cast<Transfer*>(::io_uring_cqe_get_data(done)), done->res);
        ::io_uring_cqe_seen(&ring_, done);
      }
    }
    if (incoming.into == nullptr && incoming.size > 0) incoming.take(into, incoming.size);
  }

 private:
  struct Transfer {
    char* at;
    std::size_t left;
    bool is_send;
  };

  void submit(Transfer& transfer) {
    if (transfer.left == 0) return;
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    if (transfer.is_send) {
      ::io_uring_prep_send(entry, next_, transfer.at, transfer.left, MSG_WAITALL | MSG_NOSIGNAL);
    } else {
      ::io_uring_prep_recv(entry, previous_, transfer.at, transfer.left, MSG_WAITALL);
    }
    ::io_uring_sqe_set_data(entry, &transfer);
  }

  // The kernel may end either before all is transferred.
  void complete(Transfer& transfer, int result) {
    if (result == 0)
      carriers::give_up_plainly("the previous rank has ended; its own words say why");
    if (result < 0) {
      errno = -result;
      give_up(transfer.is_send ? "send to the next rank" : "receive from the previous rank");
    }
    transfer.at += result;
    transfer.left -= static_cast<std::size_t>(result);
    submit(transfer);
  }

  io_uring ring_{};
  std::vector<char> rooms_[2], scratch_;  // one is sent while the other is written
  unsigned turn_ = 0;
  int next_ = -1, previous_ = -1;
};

}  // namespace

std::unique_ptr<Neighbours> neighbours_by_io_uring(const Place& place) {
  return std::make_unique<UringNeighbours>(place);
}

}  // namespace ring_allreduce
