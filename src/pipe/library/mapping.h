#pragma once

#include <cstddef>
#include <utility>

namespace ferry::pd {

// A memory object of the driver's, mapped in the program; the child of a fork() does not have it.
class Mapping {
 public:
  Mapping() = default;
  // `copies`: so many times, one after the other: what crosses the end of a ring is in one piece. Empty: there is
  // no memory.
  Mapping(int memory, std::size_t size, int copies);
  Mapping(Mapping&& other) noexcept { *this = std::move(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
    return *this;
  }
  ~Mapping();

  std::byte* base() const { return base_; }
  std::size_t size() const { return size_; }
  explicit operator bool() const { return base_ != nullptr; }
  bool holds(const void* address) const {
    const auto* byte = static_cast<const std::byte*>(address);
    return byte >= base_ && byte < base_ + size_;
  }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0, mapped_ = 0;
};

}  // namespace ferry::pd
