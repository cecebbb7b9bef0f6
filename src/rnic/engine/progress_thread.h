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
#include "rnic/engine/looks.h"
#include "rnic/system/link.h"

namespace ferry::rnic {

// Runs the engine when the program does not: for one-sided operations, timers, and programs that
// sleep on a completion channel.
//
//   listening   sleeps on the sockets until a packet comes or a deadline is due; while one packet
//               follows the other it looks for the next before it sleeps (looks.h)
//   parked      the program polls by itself: sleeps, and looks at times whether that has ceased
//   detached    holds no descriptor, and does nothing until it is attached again (a process that is
//   being moved)
//
// It parks after it was woken for packets several times while the program polled, unless the
// program ceases to poll when it holds off for a moment: then it polls for its completions only,
// and spins on its memory for what the peer writes. A program that polls takes what an armed CQ
// waits for as well (UCX polls one CQ and has another one armed); to arm a CQ ends the parking.
class ProgressThread {
 public:
  // `link_changed` is called by the thread, without a lock, when the interface goes down or comes
  // up.
  ProgressThread(Engine& engine, std::string netdev, std::function<void(bool up)> link_changed)
      : engine_(engine), link_(std::move(netdev)), link_changed_(std::move(link_changed)) {}
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // 0 or errno. Starts attached.
  int start();
  // Listens from now on, if it was parked. Cheap when it was not.
  void listen();
  // Wakes it, so that it looks at the deadlines again.
  void kick();
  // Returns when it has closed its descriptor. The ports may be taken away then.
  void detach();
  // 0 or errno: no descriptor.
  int attach();
  // In a forked child there is no such thread: only its descriptor is left to be closed.
  void abandon();
  bool parked() const { return parked_.load(std::memory_order_relaxed); }

 private:
  static void* entry(void* self);
  void main();
  // Sleeps and works; returns when a detach() or the end is asked for.
  void serve();
  enum class Wake : std::uint8_t { kPacket, kOther };
  Wake sleep_listening();
  // Looks for the next packets, unless the program has run the engine more often than `runs` times.
  // Whether there were any, in time.
  bool look(std::uint64_t runs);
  // Whether the program takes packets by itself: holds off for a moment, and looks.
  bool program_serves_itself();
  bool work_waits();
  void look_at_link();
  void look_whether_port_was_freed();
  void pause(transport::Time time);
  // Returns how long it was parked.
  transport::Time park();
  bool asked_to_leave() const {
    return request_.load(std::memory_order_relaxed) != Request::kServe;
  }
  void drain_event();
  int open_event();
  // When nobody writes to it any more: the number may be another descriptor's at once.
  void close_event();

  Engine& engine_;
  LinkWatch link_;
  const std::function<void(bool up)> link_changed_;
  pthread_t thread_{};
  bool started_ = false;
  std::atomic<int> event_{-1};
  std::atomic<unsigned> kicking_{0};  // threads of the program that are in kick()

  enum class Request : std::uint8_t { kServe, kDetach, kEnd };
  std::atomic<Request> request_{Request::kServe};
  std::atomic<bool> parked_{false};
  std::atomic<std::uint64_t> listen_requests_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool detached_ = false;  // under mutex_

  Looks looks_;
  unsigned wasted_ = 0;         // wake-ups for packets while the program polled, less the others
  unsigned wasted_limit_ = 16;  // then it is looked at more closely
};

}  // namespace ferry::rnic
