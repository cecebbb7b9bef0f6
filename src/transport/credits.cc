#include "transport/credits.h"

#include <algorithm>
#include <array>

namespace ferry::transport {
namespace {

constexpr std::array<std::uint32_t, 31> kCredits = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

}  // namespace

std::uint32_t credits_of(std::uint8_t code) {
  return kCredits[std::min<std::size_t>(code, 30)];
}

std::uint8_t credit_code(std::uint32_t receives) {
  const auto after = std::upper_bound(kCredits.begin(), kCredits.end(), receives);
  return static_cast<std::uint8_t>(after - kCredits.begin() - 1);
}

}  // namespace ferry::transport
