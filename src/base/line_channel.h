#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "base/unique_fd.h"

namespace ferry {

// Lines of text over a socket or a character device, none of which waits longer than its caller likes.
class LineChannel {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kLongest = 1 << 20;  // bytes of a line that is read

  // `descriptor` is read and written without waiting from now on.
  explicit LineChannel(UniqueFd descriptor);

  // Throws Failure when the other end does not take it all before `until`, or is not there.
  void write(const std::string& text, Clock::time_point until);
  // The next line, without its end. Nothing: there is none before `until`. Throws Failure when the other end has gone,
  // or sends a line that is too long.
  std::optional<std::string> read(Clock::time_point until);

 private:
  std::optional<std::string> take_line();
  // What poll() finds; 0: nothing before `until`.
  short wait(short events, Clock::time_point until) const;

  const UniqueFd descriptor_;
  std::string received_;
  std::size_t searched_ = 0;  // bytes of received_ in which there is no end of a line
};

}  // namespace ferry
