#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

// A lock that costs its usual holder no atomic operation. A thread that stops a device must know that no
// thread of the program is inside of it, so each queue of the device behind has a gate. Most queues are
// used by one thread: the first thread that comes owns the gate, and marks by two stores when it is in
// and when it has left. A second thread takes the ownership away until open(), and both then take the
// mutex. The owner may be just between its look at the gate and its mark: so a thread that takes the
// ownership away makes each thread of the process pass a barrier (membarrier(2)), and waits then until
// the mark is gone.
namespace ferry::virt {

class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Data path. True: the calling thread is in, alone, and must call leave(). False: it must take
  // lock().
  bool enter() {
    const std::uintptr_t self = this_thread();
    if (owner_.load(std::memory_order_relaxed) != self) return false;
    inside_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (owner_.load(std::memory_order_relaxed) == self) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() { inside_.store(false, std::memory_order_release); }

  // No other thread is in while the caller has the lock, whatever state the gate is in.
  std::unique_lock<std::mutex> lock();

  // Until open(), threads come in by lock() alone. When shut() returns, no thread that came by enter() is
  // in. One barrier serves all of the gates.
  static void shut(std::span<Gate* const> gates);
  // With the lock held: as shut(), for this gate.
  void shut_locked() { owner_.store(kShut, std::memory_order_relaxed); }
  // With the lock held: the next thread that comes will own the gate.
  void open();
  // With the lock held.
  bool is_shut() const { return owner_.load(std::memory_order_relaxed) == kShut; }

 private:
  // The values of owner_ other than the number of a thread.
  static constexpr std::uintptr_t kNobody = 0, kShared = 1, kShut = 2;

  static void barrier();
  void await_empty() const;

  static std::uintptr_t this_thread() {
    return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  }

  std::atomic<std::uintptr_t> owner_{kNobody};
  std::atomic<bool> inside_{false};
  std::mutex mutex_;
};

}  // namespace ferry::virt
