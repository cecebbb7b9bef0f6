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
  // Leaves read_end() to the program. While threads of the program wait there, the write end stays
  // open, too: closing it would wake them, and a closed channel has no event for them.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int open(bool close_on_exec);  // 0 or errno
  int read_end() const { return read_end_; }
  // Called around a blocking read of a byte. A thread that is cancelled there never leaves.
  void enter_wait() { ++waiting_; }
  void leave_wait() { --waiting_; }

  // False: the program has put another file than our pipe at `descriptor`.
  bool is_mine(int descriptor) const;
  // The program has closed read_end() and its duplicates, in whatever way.
  bool is_abandoned() const;
  // Called after a restore: the pipe there is another one, with other numbers.
  void restored();

  void push(const QueuedEvent& event);
  // Takes the oldest event, after a byte was read. False: its event was withdrawn meanwhile.
  bool pop(QueuedEvent* out);
  // Takes away the events for which `condition` holds, and returns them.
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
