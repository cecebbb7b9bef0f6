#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "request.h"

namespace nf_chain {

// Whole messages, one after the other.
struct Batch {
  std::vector<char> bytes = std::vector<char>(kBatch);
  std::size_t size = 0;
};

// The way of batches between two threads: one fills them, one empties them.
class Batches {
 public:
  Batches() {
    for (Batch& batch : all_) empty_.push_back(&batch);
  }

  // Waits for an empty one.
  Batch* take_empty() { return take(empty_); }
  void put_full(Batch* batch) { put(full_, batch); }
  // Waits for a full one. Null: no more will come.
  Batch* take_full() { return take(full_); }
  void put_empty(Batch* batch) { put(empty_, batch); }
  void end() { put(full_, nullptr); }

 private:
  using Queue = std::deque<Batch*>;
  Batch* take(Queue& queue) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !queue.empty(); });
    Batch* const first = queue.front();
    queue.pop_front();
    return first;
  }
  void put(Queue& queue, Batch* batch) {
    {
      const std::lock_guard lock(mutex_);
      queue.push_back(batch);
    }
    changed_.notify_one();
  }

  std::array<Batch, 4> all_;
  Queue empty_, full_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace nf_chain
