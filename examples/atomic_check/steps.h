// Whether a counter that several QPs stepped atomically was stepped by each request exactly once.
#pragma once

#include <cstdint>
#include <vector>

namespace atomic_check {

// What one QP's successful steps of a counter found there, in the order in which it posted them.
using Found = std::vector<uint64_t>;

struct Judgement {
  uint64_t steps = 0;
  uint64_t doubled = 0;     // values found more than once: a step was not atomic, or not executed
  uint64_t missing = 0;     // values below the counter that none found: a step was executed twice
  uint64_t beyond = 0;      // values that the counter never had
  uint64_t disordered = 0;  // values not above the one before it on the same QP

  bool exact() const { return doubled + missing + beyond + disordered == 0; }
};

// `counter`: what it holds after all steps, having begun at 0.
Judgement judge(uint64_t counter, const std::vector<Found>& found);

}  // namespace atomic_check
