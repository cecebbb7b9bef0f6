#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace ferry::store {

using Time = std::chrono::sys_time<std::chrono::milliseconds>;

// UTC, as "2026-11-28T13:04:05.678Z": texts are in the order of the times, up to the year 9999.
std::string time_text(Time time);
// Nothing for what is no such text.
std::optional<Time> parse_time(const std::string& text);

}  // namespace ferry::store
