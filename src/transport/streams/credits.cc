#include "transport/streams/credits.h"

#include <algorithm>
#include <array>

#include "wire/psn.h"

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

// MSN and SSN count the same requests (clause 9.7.7.2): the limit is MSN + credits. It never falls,
// since credits cannot be taken back.
void SendCredits::update(const wire::Aeth& aeth, std::int64_t completed_ssn,
                         std::uint64_t next_ssn) {
  namespace syndrome = wire::syndrome;
  if ((aeth.syndrome & syndrome::kKindMask) != syndrome::kAck) return;
  const std::uint8_t code = aeth.syndrome & syndrome::kValueMask;
  if (code == syndrome::kNoCredits) {
    unlimited = true;
    return;
  }
  const std::int64_t msn =
      completed_ssn +
      wire::psn_diff(aeth.msn, static_cast<std::uint32_t>(completed_ssn & wire::kPsnMask));
  if (msn >= static_cast<std::int64_t>(next_ssn)) return;
  unlimited = false;
  limit_ssn = std::max(limit_ssn, msn + credits_of(code));
}

}  // namespace ferry::transport
