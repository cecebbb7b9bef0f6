#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

// What the fuzz targets share: the input as a tape of fields, and the check of what must hold
// whatever the input is.
namespace ferry::fuzz {

// Numbers are little-endian; past the end everything is 0, so that a cut input is still one.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(data, size) {}
  bool empty() const { return left_.empty(); }
  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const std::uint8_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  std::uint32_t number(unsigned bytes) {
    std::uint32_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) value |= std::uint32_t{byte()} << (8 * i);
    return value;
  }
  std::vector<std::byte> bytes(std::size_t count) {
    count = count < left_.size() ? count : left_.size();
    const auto* begin = reinterpret_cast<const std::byte*>(left_.data());
    left_ = left_.subspan(count);
    return {begin, begin + count};
  }
  std::vector<std::byte> rest() { return bytes(left_.size()); }

 private:
  std::span<const std::uint8_t> left_;
};

// Ends the run, as a crash does, when something is not as it must be.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", what);
  std::abort();
}

}  // namespace ferry::fuzz
