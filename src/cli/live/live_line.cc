#include "cli/live/live_line.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

namespace ferry::cli {

LiveLine::LiveLine(bool is_wanted) : is_shown_(is_wanted && ::isatty(STDERR_FILENO) == 1) {}

void LiveLine::show(const std::string& text) {
  if (!is_shown_) return;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  has_text_ = true;
}

void LiveLine::clear() {
  if (has_text_) fmt::print(stderr, "\r\033[K");
  has_text_ = false;
}

}  // namespace ferry::cli
