#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "host/peers/messages.h"

namespace ferry::host {

// Writes what is told in a thread of its own, so that who tells, while programs stand still, never waits for who reads.
// Of each phase what was told last is enough.
class Teller {
 public:
  explicit Teller(std::function<void(const v1::CheckpointProgress& progress)> write);
  // Returns when all is written.
  ~Teller();
  Teller(const Teller&) = delete;

  void tell(const v1::CheckpointProgress& progress);

 private:
  void run();

  const std::function<void(const v1::CheckpointProgress&)> write_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<const v1::CheckpointProgress>> told_;  // and not written
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace ferry::host
