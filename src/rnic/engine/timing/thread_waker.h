#pragma once

#include <atomic>
#include <cstdint>

namespace ferry::rnic {

// What the program's threads tell the progress thread. While that thread is not there, or holds no
// descriptor, this wakes nobody.
class ThreadWaker {
 public:
  // --- Any thread ------------------------------------------------------------------------------

  // Wakes the thread, so that it looks at the deadlines again.
  void kick();
  // Has the thread listen from now on. Cheap if it is not parked.
  void listen();

  // --- For the progress thread, and whoever makes and ends it ----------------------------------

  // 0 or errno: no descriptor.
  int open();
  // Closes the descriptor once no thread is in kick(): the number may be another descriptor's at
  // once.
  void close();
  // In a forked child, which has none of these threads: closes the descriptor.
  void abandon();
  // Readable from a kick() until drain().
  int descriptor() const { return event_.load(); }
  void drain();

  // How many times listen() was called.
  std::uint64_t listen_requests() const { return listen_requests_.load(); }
  // Whether listen() has to kick the thread. It looks at listen_requests() once more before it
  // sleeps.
  void set_parked(bool parked) { parked_.store(parked); }

 private:
  std::atomic<int> event_{-1};
  std::atomic<unsigned> kicking_{0};  // threads that are in kick()
  std::atomic<bool> parked_{false};
  std::atomic<std::uint64_t> listen_requests_{0};
};

}  // namespace ferry::rnic
