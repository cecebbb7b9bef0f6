#pragma once

#include <time.h>

#include <cstdint>

namespace ferry::agent {

// CLOCK_MONOTONIC, in nanoseconds.
inline std::int64_t now_ns() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

}  // namespace ferry::agent
