#pragma once

#include <cstdint>

namespace ferry::port {

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). A seed gives the same sequence on every
// platform, which the standard distributions do not promise.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }
  // Uniform in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double probability) { return unit() < probability; }
  // Uniform in [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    const std::uint64_t width = high - low + 1;
    return width == 0 ? next() : low + next() % width;
  }

 private:
  std::uint64_t state_;
};

}  // namespace ferry::port
