#include "verbs/kernel/one_thread.h"

#include <pthread.h>

#include "base/own_thread.h"

namespace ferry::verbs {

void* OneThread::thread_main(void* self) {
  ::pthread_setname_np(::pthread_self(), "ferry-relay");
  static_cast<OneThread*>(self)->serve();
  return nullptr;
}

void OneThread::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return task_ != nullptr; });
    (*task_)();
    task_ = nullptr;
    changed_.notify_all();
  }
}

int OneThread::run(const std::function<void()>& task) {
  std::lock_guard turn(turn_);
  if (!is_started_) {
    pthread_t thread{};
    if (const int error = start_own_thread(&thread, thread_main, this)) return error;
    ::pthread_detach(thread);
    is_started_ = true;
  }
  std::unique_lock lock(mutex_);
  task_ = &task;
  changed_.notify_all();
  changed_.wait(lock, [this] { return task_ == nullptr; });
  return 0;
}

}  // namespace ferry::verbs
