#pragma once

#include <cstdint>

#include "transport/types.h"

namespace ferry::rnic {

// Gives an RNIC the time and random bits. Simulations have an environment of their own.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual transport::Time now() = 0;         // monotonic
  virtual transport::Time wall_clock() = 0;  // since the epoch
  virtual std::uint64_t random() = 0;        // uniform; cannot be guessed outside simulations
};

// CLOCK_MONOTONIC, CLOCK_REALTIME and getrandom(2). Thread-safe, lives for ever.
Environment& system_environment();

}  // namespace ferry::rnic
