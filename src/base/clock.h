#pragma once

#include <chrono>

namespace ferry {

// A time as reports have it.
inline double milliseconds_between(std::chrono::steady_clock::time_point from,
                                   std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace ferry
