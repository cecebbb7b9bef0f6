#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace ferry::hca {

// Numbers objects of the stock library, and finds them by number. Any thread may call any function;
// find() takes no lock.
template <typename T>
class Table {
 public:
  // A number for set(). Throws std::bad_alloc, also when all numbers are in use.
  std::uint32_t reserve() {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const std::uint32_t number = free_.back();
      free_.pop_back();
      return number;
    }
    if (used_ == kChunks * kChunk) throw std::bad_alloc();
    // Makes room here, so that release() needs no memory.
    if (free_.capacity() <= used_) free_.reserve(std::max<std::size_t>(2 * used_, 16));
    auto& chunk = chunks_[used_ / kChunk];
    if (!chunk) {
      chunk = std::make_unique<Chunk>();
      found_[used_ / kChunk].store(chunk.get(), std::memory_order_release);
    }
    return used_++;
  }
  void set(std::uint32_t number, T* object) {
    found_[number / kChunk].load(std::memory_order_acquire)->at(number % kChunk).store(object);
  }
  void release(std::uint32_t number) {
    set(number, nullptr);
    std::lock_guard lock(mutex_);
    free_.push_back(number);
  }
  // Null: no object has this number.
  T* find(std::uint32_t number) const {
    if (number >= kChunks * kChunk) return nullptr;
    const Chunk* chunk = found_[number / kChunk].load(std::memory_order_acquire);
    return chunk != nullptr ? (*chunk)[number % kChunk].load(std::memory_order_acquire) : nullptr;
  }

 private:
  static constexpr std::uint32_t kChunk = 1024, kChunks = 1024;
  using Chunk = std::array<std::atomic<T*>, kChunk>;

  std::array<std::atomic<Chunk*>, kChunks> found_{};
  std::mutex mutex_;  // guards what follows
  std::array<std::unique_ptr<Chunk>, kChunks> chunks_;
  std::vector<std::uint32_t> free_;
  std::uint32_t used_ = 0;
};

}  // namespace ferry::hca
