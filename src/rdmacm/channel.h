#pragma once

#include <rdma/rdma_user_cm.h>

#include <atomic>
#include <cstdint>
#include <deque>

namespace ferry::rdmacm {

struct QueuedEvent {
  rdma_ucm_event_resp response{};
  std::uint32_t id = 0;      // whose events_reported it raises
  std::uint32_t group = 0;   // a multicast join's, or 0
  std::uint32_t new_id = 0;  // of a connection request, or 0
};

// One open /dev/infiniband/rdma_cm. The program has the reading end of a pipe, which holds a byte
// for each event: it polls readable, never writable, and a read of a byte blocks as the program set
// the descriptor. Not thread-safe but for read_end().
class Channel {
 public:
  Channel() = default;
  // Leaves read_end() to the program; and while threads of it wait there, the other end is left
  // open: a closed channel has no event to wake them with.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int open(bool close_on_exec);  // 0 or errno
  int read_end() const { return read_end_; }
  // Around a blocking read of a byte. A thread that is cancelled there never leaves.
  void enter_wait() { ++waiting_; }
  void leave_wait() { --waiting_; }

  // The descriptor is still that of our pipe: the program may have put something else there.
  bool is_mine(int descriptor) const;
  // The program has closed it, in whatever way.
  bool is_abandoned() const;
  // After a restore the pipe is another one.
  void restored();

  void push(const QueuedEvent& event);
  // After a byte was read. False: its event was withdrawn meanwhile.
  bool pop(QueuedEvent* out);
  // Takes the events away for which `condition` holds.
  template <typename Condition>
  std::deque<QueuedEvent> withdraw(Condition condition) {
    std::deque<QueuedEvent> taken, kept;
    for (const QueuedEvent& event : events_) (condition(event) ? taken : kept).push_back(event);
    events_.swap(kept);
    stale_bytes_ += taken.size();
    return taken;
  }

 private:
  int read_end_ = -1, write_end_ = -1;
  std::atomic<int> waiting_{0};
  std::uint64_t device_ = 0, inode_ = 0;
  std::deque<QueuedEvent> events_;
  std::size_t stale_bytes_ = 0;  // in the pipe, of events that were withdrawn
};

}  // namespace ferry::rdmacm
