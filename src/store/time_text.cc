#include "store/time_text.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <charconv>
#include <ctime>

namespace ferry::store {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string time_text(Time time) {
  const auto second = std::chrono::floor<seconds>(time);
  // system_clock counts nanoseconds, up to the year 2262.
  const auto since_1970 = static_cast<std::time_t>(second.time_since_epoch().count());
  return fmt::format("{:%FT%H:%M:%S}.{:03}Z", fmt::gmtime(since_1970), (time - second).count());
}

std::optional<Time> parse_time(const std::string& text) {
  tm parts{};
  const char* const end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S.", &parts);
  unsigned rest = 0;
  if (end == nullptr) return std::nullopt;
  std::from_chars(end, text.c_str() + text.size(), rest);
  const Time time{seconds(::timegm(&parts)) + milliseconds(rest)};
  // Every other spelling of a time is refused.
  if (time_text(time) != text) return std::nullopt;
  return time;
}

}  // namespace ferry::store
