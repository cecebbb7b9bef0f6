#include "base/line_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/failure.h"

namespace ferry {

LineChannel::LineChannel(UniqueFd descriptor) : descriptor_(std::move(descriptor)) {
  ::fcntl(descriptor_.get(), F_SETFL, ::fcntl(descriptor_.get(), F_GETFL) | O_NONBLOCK);
}

short LineChannel::wait(short events, Clock::time_point until) const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  pollfd waited{descriptor_.get(), events, 0};
  const int found =
      ::poll(&waited, 1, static_cast<int>(std::clamp<long>(left.count(), 0, 1 << 30)));
  return found > 0 ? waited.revents : short{0};
}

void LineChannel::write(const std::string& text, Clock::time_point until) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(descriptor_.get(), text.data() + done, text.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EAGAIN && errno != EINTR) {
      throw Failure("the other end does not listen: " + error_text(errno));
    } else if ((wait(POLLOUT, until) & POLLOUT) == 0) {  // a serial port that nobody reads hangs up
      throw Failure("the other end does not listen");
    }
  }
}

std::optional<std::string> LineChannel::take_line() {
  const auto end = received_.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = received_.size();
    return std::nullopt;
  }
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  searched_ = 0;
  return line;
}

std::optional<std::string> LineChannel::read(Clock::time_point until) {
  for (;;) {
    if (auto line = take_line()) return line;
    if (received_.size() > kLongest) throw Failure("the other end sends a line without end");
    std::array<char, 4096> bytes;
    const ssize_t got = ::read(descriptor_.get(), bytes.data(), bytes.size());
    if (got > 0) {
      received_.append(bytes.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      throw Failure("the other end has gone");
    } else if (errno != EAGAIN && errno != EINTR) {
      throw Failure("the other end has gone: " + error_text(errno));
    } else if (wait(POLLIN, until) == 0) {
      return std::nullopt;
    }
  }
}

}  // namespace ferry
