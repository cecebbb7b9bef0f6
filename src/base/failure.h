#pragma once

#include <stdexcept>
#include <string>

namespace ferry {

// What ends a command of the tools: one line that says what failed, on what, and what to do.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "No such file or directory" for ENOENT; thread-safe.
std::string error_text(int error);

// Names of processes may be any bytes: those that are no printable UTF-8 become '?'.
std::string printable(const std::string& text);

// The first line of `text`, without trailing blanks.
std::string one_line(const std::string& text);

}  // namespace ferry
