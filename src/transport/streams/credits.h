#pragma once

#include <cstdint>

#include "wire/header.h"

// End-to-end flow control credits in the AETH (IBTA vol. 1 clause 9.7.7.2, table 47): 5-bit codes,
// 0 to 30.
namespace ferry::transport {

// The number of receive WQEs that a code (0 .. 30) stands for.
std::uint32_t credits_of(std::uint8_t code);

// The code of the largest credit count that is not more than `receives`.
std::uint8_t credit_code(std::uint32_t receives);

// The credits that the peer has granted the requester (clause 9.7.7.2.5): requests with SSN ≤
// limit_ssn may be sent freely.
struct SendCredits {
  bool unlimited = false;
  std::int64_t limit_ssn = 0;
  // The PSN of the packet that was sent beyond the limit; it is outstanding while in [una, next).
  std::uint64_t limited_psn = 0;

  bool cover(std::uint64_t ssn) const {
    return unlimited || static_cast<std::int64_t>(ssn) <= limit_ssn;
  }
  // Takes the credits of an acknowledgement; a NAK changes nothing. `completed_ssn` is the SSN of
  // the last WQE that completed, `next_ssn` that of the next to be sent.
  void update(const wire::Aeth& aeth, std::int64_t completed_ssn, std::uint64_t next_ssn);
};

}  // namespace ferry::transport
