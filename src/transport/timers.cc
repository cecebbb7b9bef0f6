#include "transport/timers.h"

#include <algorithm>
#include <array>

namespace ferry::transport {

Time rnr_delay(std::uint8_t code) {
  // In units of 10 us.
  static constexpr std::array<std::uint32_t, 32> kTable = {
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::chrono::microseconds(10) * kTable[code & 31];
}

Time ack_timeout(std::uint8_t code, unsigned repeated) {
  if (code == 0) return kNever;
  constexpr unsigned kLongEnough = 16;
  const unsigned asked = std::max<unsigned>(code & 31, 8);
  const unsigned exponent = std::max(asked, std::min(asked + std::min(repeated, 2u), kLongEnough));
  return Time(std::int64_t{4096} << exponent);
}

}  // namespace ferry::transport
