#include "host/checkpoint/progress.h"

#include <chrono>
#include <utility>

#include "ferry.pb.h"

namespace ferry::host {

Progress::Progress(std::uint64_t attempt, Tell tell) : attempt_(attempt), tell_(std::move(tell)) {}

void Progress::begin(Phase phase) {
  std::lock_guard lock(mutex_);
  phase_ = std::move(phase);
  meter_.begin();
  tell();
}

void Progress::stood_still(double milliseconds) {
  std::lock_guard lock(mutex_);
  standstill_ms_ = milliseconds;
  tell();
}

void Progress::give_up() {
  std::lock_guard lock(mutex_);
  if (is_given_up_) return;
  become("give up");
  is_given_up_ = true;
}

TellBytes Progress::of_host() {
  std::lock_guard lock(mutex_);
  return [this, host = hosts_++](const StepBytes& bytes) { set(host, bytes); };
}

void Progress::set(std::size_t host, const StepBytes& bytes) {
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  if (is_given_up_) return;
  if (!phase_.with_bytes.empty()) become(std::exchange(phase_.with_bytes, {}));
  meter_.set(host, bytes, now);
  const auto& sum = meter_.read().bytes;
  if (seldom_.is_due(now, sum.done == sum.total)) tell();
  if (!phase_.after_bytes.empty() && meter_.are_done(hosts_)) {
    become(std::exchange(phase_.after_bytes, {}));
  }
}

// With the mutex.
void Progress::become(const std::string& phase) {
  phase_.name = phase;
  meter_.begin();
  tell();
}

// With the mutex.
void Progress::tell() const {
  if (is_given_up_) return;
  const auto reading = meter_.read();
  v1::CheckpointProgress progress;
  progress.set_phase(phase_.name);
  progress.set_done_bytes(reading.bytes.done);
  progress.set_total_bytes(reading.bytes.total);
  progress.set_bytes_per_second(reading.rate);
  progress.set_left_seconds(reading.left_seconds);
  progress.set_standstill_ms(standstill_ms_);
  progress.set_attempt(attempt_);
  tell_(progress);
}

}  // namespace ferry::host
