#pragma once

#include <fmt/core.h>

#include <functional>

// ferryd's log: a line for each call, written by spdlog. Only log.cc includes spdlog's headers,
// because every file with them would have its own code to format numbers.
namespace ferry::log {

enum class Level { kDebug, kInfo, kWarn, kError };

void write(Level level, fmt::string_view format, fmt::format_args values);

template <typename... Values>
void debug(fmt::format_string<Values...> format, Values&&... values) {
  write(Level::kDebug, format, fmt::make_format_args(values...));
}
template <typename... Values>
void info(fmt::format_string<Values...> format, Values&&... values) {
  write(Level::kInfo, format, fmt::make_format_args(values...));
}
template <typename... Values>
void warn(fmt::format_string<Values...> format, Values&&... values) {
  write(Level::kWarn, format, fmt::make_format_args(values...));
}
template <typename... Values>
void error(fmt::format_string<Values...> format, Values&&... values) {
  write(Level::kError, format, fmt::make_format_args(values...));
}

// Writes to stderr from here on; spdlog's default is stdout. With the time and the level; or, where
// stderr is systemd's journal, which has a time by itself, with the level as sd-daemon(3) has it.
void begin();
// All of it is written when this returns.
void end();

}  // namespace ferry::log

namespace ferry {

// For what cannot be undone any more: a Failure of `call` goes to the log.
void report_failure(const std::function<void()>& call);

}  // namespace ferry
