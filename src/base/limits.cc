#include "base/limits.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/failure.h"

namespace ferry {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::array kLimits = {
    Limit{"stop", &Limits::stop, milliseconds(100), hours(1)},
    Limit{"transfer", &Limits::transfer, seconds(1), hours(24)},
    Limit{"restore", &Limits::restore, seconds(1), hours(24)},
    Limit{"standstill", &Limits::standstill, seconds(1), hours(24)},
    Limit{"source", &Limits::source, seconds(1), hours(24)},
    Limit{"resume", &Limits::resume, milliseconds(100), hours(1)},
    Limit{"peers", &Limits::peers, milliseconds(0), hours(1)},
    Limit{"stand-in", &Limits::stand_in, seconds(1), hours(24)},
    Limit{"checkpoint", &Limits::checkpoint, seconds(1), hours(24 * 365)},
    Limit{"origin", &Limits::origin, seconds(1), hours(24)},
    Limit{"lease", &Limits::lease, seconds(2), hours(1)},
};

struct Unit {
  std::string_view name;
  std::int64_t ms;
};
constexpr std::array kUnits = {Unit{"min", 60'000}, Unit{"s", 1000}, Unit{"ms", 1}};

std::optional<Limits::Time> parse_time(std::string_view text) {
  std::uint32_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(end, text.data() + text.size());
  for (const Unit& known : kUnits) {
    if (unit == known.name) return Limits::Time(known.ms * count);
  }
  return std::nullopt;
}

}  // namespace

std::span<const Limit> all_limits() {
  return kLimits;
}

void set_limit(const std::string& text, Limits* limits) {
  const std::size_t sign = text.find('=');
  const std::string name = text.substr(0, sign);
  const auto limit = std::find_if(kLimits.begin(), kLimits.end(),
                                  [&](const Limit& known) { return known.name == name; });
  if (limit == kLimits.end()) {
    std::string names;
    for (const Limit& known : kLimits)
      names += fmt::format("{} {}", names.empty() ? "" : ",", known.name);
    throw Failure(fmt::format("there is no limit '{}'; known:{}", name, names));
  }
  const auto time = sign == std::string::npos ? std::nullopt
                                              : parse_time(std::string_view(text).substr(sign + 1));
  if (!time || *time < limit->least || *time > limit->most) {
    throw Failure(fmt::format("--limit {}: give a time from {} to {}, for example {}={}", text,
                              to_string(limit->least), to_string(limit->most), name,
                              to_string(Limits().*limit->value)));
  }
  limits->*limit->value = *time;
}

std::string to_string(Limits::Time time) {
  for (const Unit& unit : kUnits) {
    if (time.count() % unit.ms == 0 && (time.count() != 0 || unit.ms == 1)) {
      return fmt::format("{}{}", time.count() / unit.ms, unit.name);
    }
  }
  return {};
}

std::string stood_still(Limits::Time standstill) {
  return fmt::format(
      "it stood still for {} and its peers wait no longer (ferryd --limit standstill=TIME)",
      to_string(standstill));
}

}  // namespace ferry
