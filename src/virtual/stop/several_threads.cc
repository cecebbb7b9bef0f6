#include "virtual/stop/several_threads.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <new>

namespace ferry::virt {
namespace {

constexpr std::size_t kMostThreads = 16;

class Work {
 public:
  Work(std::size_t count, const std::function<int(std::size_t)>& act) : count_(count), act_(act) {}

  void do_some() {
    while (!has_failed_.load(std::memory_order_relaxed)) {
      const std::size_t next = next_.fetch_add(1, std::memory_order_relaxed);
      if (next >= count_) return;
      if (const int error = do_one(next)) failed(next, error);
    }
  }
  // All threads have ended.
  int error() const { return error_; }

 private:
  int do_one(std::size_t index) const try { return act_(index); } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  // Whatever comes before this item has been begun as well, and ends: so the first one that fails is always the same.
  void failed(std::size_t index, int error) {
    std::lock_guard lock(mutex_);
    if (error_ == 0 || index < failed_at_) {
      error_ = error;
      failed_at_ = index;
    }
    has_failed_.store(true, std::memory_order_relaxed);
  }

  const std::size_t count_;
  const std::function<int(std::size_t)>& act_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> has_failed_{false};
  std::mutex mutex_;  // guards what follows
  int error_ = 0;
  std::size_t failed_at_ = 0;
};

void* help(void* work) {
  ::pthread_setname_np(::pthread_self(), "ferry-maker");
  static_cast<Work*>(work)->do_some();
  return nullptr;
}

}  // namespace

int by_several_threads(unsigned threads, std::size_t count,
                       const std::function<int(std::size_t)>& act, StartThread start) {
  Work work(count, act);
  std::array<pthread_t, kMostThreads> others{};
  const std::size_t wanted = std::min({std::size_t{threads}, count, kMostThreads});
  std::size_t started = 0;
  while (started + 1 < wanted && start(&others[started], help, &work) == 0) ++started;
  work.do_some();
  for (std::size_t i = 0; i < started; ++i) ::pthread_join(others[i], nullptr);
  return work.error();
}

}  // namespace ferry::virt
