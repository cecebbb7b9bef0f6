// Numbers on a command line.
#pragma once

#include <charconv>
#include <cstring>
#include <string>
#include <system_error>

#include "failure.h"

namespace stream_check {

// The value of `--option`, from `min` to `max`. Throws Failure.
template <typename T>
T number(const char* option, const char* text, T min, T max) {
  T value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < min || value > max) {
    throw Failure(std::string("--") + option + " " + text + ": give a number from " +
                  std::to_string(min) + " to " + std::to_string(max));
  }
  return value;
}

}  // namespace stream_check
