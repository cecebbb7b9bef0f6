#pragma once

#include <chrono>
#include <thread>

namespace carriers {

enum class Attempt { kDone, kLater, kFailed };

// Calls try_once() until it is done or has failed, for `patience` milliseconds at most. Whether it is done.
template <typename TryOnce>
bool retry(int patience, TryOnce try_once) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(patience);
  for (;;) {
    const Attempt attempt = try_once();
    if (attempt != Attempt::kLater) return attempt == Attempt::kDone;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace carriers
