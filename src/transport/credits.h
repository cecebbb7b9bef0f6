#pragma once

#include <cstdint>

// End-to-end flow control credits in the AETH (IBTA vol. 1 clause 9.7.7.2, table 47): 5-bit codes,
// 0 to 30.
namespace ferry::transport {

// Receive WQEs that code 0..30 stands for.
std::uint32_t credits_of(std::uint8_t code);

// The code of the largest credit count that is not more than `receives`.
std::uint8_t credit_code(std::uint32_t receives);

}  // namespace ferry::transport
