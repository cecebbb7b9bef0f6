#pragma once

#include <cstdint>
#include <mutex>
#include <utility>

#include "host/checkpoint/step_bytes.h"

namespace ferry::host {

// How many bytes of images are in the store, while threads write them there. At the end these are all that they have.
class StoredBytes {
 public:
  explicit StoredBytes(TellBytes tell) : tell_(std::move(tell)) {}

  // So many more are in the images.
  void expect(std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    bytes_.total += bytes;
  }
  // They are stored.
  void add(std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    bytes_.done += bytes;
    tell_(bytes_);
  }

 private:
  const TellBytes tell_;
  std::mutex mutex_;
  StepBytes bytes_;
};

}  // namespace ferry::host
