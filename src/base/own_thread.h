#pragma once

#include <pthread.h>
#include <signal.h>

#include <cstddef>

namespace ferry {

// Starts a thread of the library's own in a program: no signal of the program is delivered to it,
// not even at its start, but for those of its own faults. Gives 0 or errno.
inline int start_own_thread(pthread_t* thread, void* (*entry)(void*), void* argument) {
  constexpr std::size_t kStackSize = 256 << 10;
  pthread_attr_t attributes;
  if (const int error = ::pthread_attr_init(&attributes)) return error;
  ::pthread_attr_setstacksize(&attributes, kStackSize);
  // The new thread inherits the mask.
  sigset_t blocked, before;
  sigfillset(&blocked);
  sigdelset(&blocked, SIGSEGV);
  sigdelset(&blocked, SIGBUS);
  ::pthread_sigmask(SIG_SETMASK, &blocked, &before);
  const int error = ::pthread_create(thread, &attributes, entry, argument);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&attributes);
  return error;
}

}  // namespace ferry
