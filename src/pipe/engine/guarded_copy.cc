#include "pipe/engine/guarded_copy.h"

#include <setjmp.h>
#include <signal.h>

#include <atomic>
#include <cstring>

namespace ferry::pipe {
namespace {

// Of the copy that this thread is in.
thread_local sigjmp_buf* copy_in_progress = nullptr;

void handle(int signal) {
  if (copy_in_progress != nullptr) siglongjmp(*copy_in_progress, 1);
  // A fault of another kind: it comes again when this returns, and then ends the process.
  ::signal(signal, SIG_DFL);
}

}  // namespace

void guard_copies() {
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_NODEFER;  // siglongjmp() does not restore the mask
  ::sigaction(SIGBUS, &action, nullptr);
}

bool guarded_copy(void* to, const void* from, std::size_t length) {
  sigjmp_buf way_out;
  if (sigsetjmp(way_out, 0) != 0) {
    copy_in_progress = nullptr;
    return false;
  }
  copy_in_progress = &way_out;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(to, from, length);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  copy_in_progress = nullptr;
  return true;
}

}  // namespace ferry::pipe
