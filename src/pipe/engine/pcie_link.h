#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ferry::pipe {

// One direction of a PCIe link: when it is free, by what its packets (TLP) take. Times are cycles.
class PcieLink {
 public:
  // STP with sequence number 4, header of 4 words 16, LCRC 4; completions have a header of 3 words.
  static constexpr double kRequestHeader = 24, kCompletionHeader = 20;
  // Acknowledgements and flow control of the other direction: two DLLPs of 8 bytes for 8 packets.
  static constexpr double kDllpPart = 2;

  explicit PcieLink(double bytes_per_cycle) : bytes_per_cycle_(bytes_per_cycle) {}

  // What has been given to it is sent within so many cycles.
  bool is_free(std::uint64_t now, double within) const {
    return free_at_ < static_cast<double>(now) + within;
  }
  // When the last byte of these is sent.
  std::uint64_t send(std::uint64_t now, double bytes) {
    free_at_ = std::max(free_at_, static_cast<double>(now)) + bytes / bytes_per_cycle_;
    return static_cast<std::uint64_t>(free_at_);
  }

 private:
  const double bytes_per_cycle_;
  double free_at_ = 0;
};

}  // namespace ferry::pipe
