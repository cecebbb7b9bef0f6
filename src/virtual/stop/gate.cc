#include "virtual/stop/gate.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

namespace ferry::virt {
namespace {

bool membarrier(int command) {
  return ::syscall(SYS_membarrier, command, 0, 0) == 0;
}

// Whether gates have owners: they do where the kernel has the barrier. ThreadSanitizer does not know the
// barrier, and would report accesses of one owner and of the next as a race.
bool has_owners() {
#ifdef __SANITIZE_THREAD__
  return false;
#else
  static const bool registered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  return registered;
#endif
}

}  // namespace

std::unique_lock<std::mutex> Gate::lock() {
  std::unique_lock guard(mutex_);
  const std::uintptr_t owner = owner_.load(std::memory_order_relaxed);
  if (owner == kNobody) {
    owner_.store(has_owners() ? this_thread() : kShared, std::memory_order_relaxed);
  } else if (owner != kShared && owner != kShut && owner != this_thread()) {
    owner_.store(kShared, std::memory_order_relaxed);
    barrier();
    await_empty();
  }
  return guard;
}

void Gate::shut(std::span<Gate* const> gates) {
  for (Gate* gate : gates) {
    std::lock_guard guard(gate->mutex_);
    gate->owner_.store(kShut, std::memory_order_relaxed);
  }
  barrier();
  for (const Gate* gate : gates) gate->await_empty();
}

void Gate::open() {
  owner_.store(kNobody, std::memory_order_relaxed);
}

void Gate::barrier() {
  if (!has_owners() || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  // A restored process has to be registered anew.
  if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
      membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
    return;
  }
  if (!membarrier(MEMBARRIER_CMD_GLOBAL)) std::abort();  // a device might be freed under a thread
}

void Gate::await_empty() const {
  while (inside_.load(std::memory_order_acquire)) std::this_thread::yield();
}

}  // namespace ferry::virt
