#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "precopy/page_ranges.h"

namespace ferry::precopy {

// Takes the memory of a program that runs on meanwhile. Pages may come again; the last ones count. All throw
// std::exception.
class PageSink {
 public:
  static constexpr std::size_t kMostPages = 256;

  virtual ~PageSink() = default;

  // `process`: its pid in its own pid namespace. `content` has the pages of the ranges, one after the other, kMostPages
  // at most.
  virtual void send_pages(std::int32_t process, const PageRanges& ranges,
                          std::span<const std::byte> content) = 0;
  // What the process still has of its memory: all else may be forgotten.
  virtual void send_kept(std::int32_t process, const PageRanges& memory) = 0;
  // What copying may take of a processor where the pages go, too, as long as none is free there (PaceSettings).
  virtual void set_floor(double share) = 0;
  // Returns when all that was sent so far is there. Gives how long the other side has waited, to slow it down.
  virtual std::chrono::nanoseconds end_round() = 0;
};

}  // namespace ferry::precopy
