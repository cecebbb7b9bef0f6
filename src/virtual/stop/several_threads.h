#pragma once

#include <cstddef>
#include <functional>

#include "base/own_thread.h"

namespace ferry::virt {

using StartThread = int (*)(pthread_t* thread, void* (*entry)(void*), void* argument);

// Calls act(i) once for each i below `count`: the caller does, and up to `threads` - 1 threads that exist only
// until this function returns. Where the system gives fewer threads (RLIMIT_NPROC, a container's pids.max), these
// do all of it. 0, or what act() gave for the first i, in their order, that failed: one of those beyond it is
// begun only if another thread has begun it already. std::bad_alloc of act() is ENOMEM.
int by_several_threads(unsigned threads, std::size_t count,
                       const std::function<int(std::size_t)>& act,
                       StartThread start = start_own_thread);

}  // namespace ferry::virt
