#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

// The events of a completion channel or of a context. The application polls, reads in blocking or
// non-blocking mode and passes around a real descriptor: a pipe that holds one byte for each event.
namespace ferry::verbs {

struct Event {
  void* element = nullptr;  // the application's struct (ibv_cq, ibv_qp), or null
  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;    // of asynchronous events
  std::atomic<std::uint32_t>* reported = nullptr;  // counts how many the application took, or null
};

class EventQueue {
 public:
  EventQueue() = default;
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  int open();  // 0 or errno
  void close();
  int descriptor() const { return read_end_; }
  // The write end, which push() alone uses: a descriptor that tells this queue from others.
  int identity() const { return write_end_; }
  // Never blocks. While 65536 events wait, another one is dropped: the application sees that there
  // are some.
  void push(const Event& event) noexcept;
  // Takes the oldest event; blocks or gives EAGAIN as the application set the descriptor. 0 or errno;
  // EINTR as read(2).
  int take(Event* out);
  // Drops the waiting events of `element`, for which no event will be pushed again.
  void forget(const void* element);

 private:
  int read_end_ = -1, write_end_ = -1;
  std::mutex mutex_;
  std::deque<Event> events_;
  std::size_t stale_bytes_ = 0;  // bytes of forgotten events that threads in take() have read
};

}  // namespace ferry::verbs
