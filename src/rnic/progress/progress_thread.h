#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "rnic/engine/engine.h"
#include "rnic/progress/looks.h"
#include "rnic/system/link.h"

namespace ferry::rnic {

// Runs the engine when the program does not: for one-sided operations, timers, and programs that
// sleep on a completion channel.
//
//   listening   sleeps on the sockets until a packet comes or a deadline is due; while one packet
//               follows the other it looks for the next before it sleeps (looks.h)
//   parked      the program polls by itself: sleeps, and looks now and then whether it still does
//   detached    holds no descriptor, and does nothing until it is attached again (the process is
//               being moved)
//
// The thread parks after it was woken for packets several times while the program polled. Before,
// it holds off for a moment: if the program ceases to poll meanwhile, it does not park, since that
// program polls for its completions only, and spins on its memory for what the peer writes. A
// program that polls takes the packets that an armed CQ waits for as well (UCX polls one CQ and has
// another one armed); to arm a CQ ends the parking.
class ProgressThread {
 public:
  // The thread calls `link_changed`, without a lock, when the interface goes down or comes up.
  ProgressThread(Engine& engine, std::string netdev, std::function<void(bool up)> link_changed)
      : engine_(engine),
        waker_(engine.thread_waker()),
        link_(std::move(netdev)),
        link_changed_(std::move(link_changed)) {}
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // 0 or errno. Starts attached.
  int start();
  // Returns when the thread has closed its descriptors. The ports may be taken away then.
  void detach();
  // 0 or errno: no descriptor.
  int attach();
  // In a forked child, which has no such thread: closes its descriptors.
  void abandon();

 private:
  static void* entry(void* self);
  void main();
  // Sleeps and works; returns when it is asked to detach or to end.
  void serve();
  enum class Wake : std::uint8_t { kPacket, kOther };
  Wake sleep_listening();
  // Looks for the next packets for a moment, unless the program has polled since program_runs() was
  // `runs`. True: some came in time.
  bool look(std::uint64_t runs);
  // Whether the program takes packets by itself: holds off for a moment, and looks.
  bool program_serves_itself();
  // Whether packets wait in a socket, or a deadline has passed.
  bool work_waits();
  void look_at_link();
  void look_whether_port_was_freed();
  void pause(transport::Time time);
  // Returns how long it was parked.
  transport::Time park();
  bool asked_to_leave() const {
    return request_.load(std::memory_order_relaxed) != Request::kServe;
  }

  Engine& engine_;
  ThreadWaker& waker_;
  LinkWatch link_;
  const std::function<void(bool up)> link_changed_;
  pthread_t thread_{};
  bool started_ = false;

  enum class Request : std::uint8_t { kServe, kDetach, kEnd };
  std::atomic<Request> request_{Request::kServe};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool detached_ = false;  // under mutex_

  Looks looks_;
  unsigned wasted_ = 0;         // wake-ups for packets while the program polled, less the others
  unsigned wasted_limit_ = 16;  // so many have serve() look more closely
};

}  // namespace ferry::rnic
