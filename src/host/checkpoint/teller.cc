#include "host/checkpoint/teller.h"

#include <utility>

#include "ferry.pb.h"

namespace ferry::host {

Teller::Teller(std::function<void(const v1::CheckpointProgress&)> write)
    : write_(std::move(write)), thread_([this] { run(); }) {}

Teller::~Teller() {
  {
    std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Teller::tell(const v1::CheckpointProgress& progress) {
  {
    std::lock_guard lock(mutex_);
    if (!told_.empty() && told_.back()->phase() == progress.phase()) told_.pop_back();
    told_.push_back(std::make_unique<v1::CheckpointProgress>(progress));
  }
  changed_.notify_all();
}

void Teller::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_over_ || !told_.empty(); });
    if (told_.empty()) return;
    const auto next = std::move(told_.front());
    told_.pop_front();
    lock.unlock();
    write_(*next);
    lock.lock();
  }
}

}  // namespace ferry::host
