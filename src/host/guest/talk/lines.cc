#include "host/guest/talk/lines.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include "base/failure.h"

namespace ferry::host {

Lines::Lines(UniqueFd descriptor) : descriptor_(std::move(descriptor)) {
  ::fcntl(descriptor_.get(), F_SETFL, ::fcntl(descriptor_.get(), F_GETFL) | O_NONBLOCK);
}

bool Lines::wait(short events, Clock::time_point until) const {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
  pollfd poll_for{descriptor_.get(), events, 0};
  return ::poll(&poll_for, 1, static_cast<int>(std::clamp<long>(left.count(), 0, 1 << 30))) > 0;
}

void Lines::write(const google::protobuf::Message& message, Clock::time_point until) {
  std::string line;
  if (!google::protobuf::util::MessageToJsonString(message, &line).ok()) {
    throw Failure("a message cannot be written as JSON");
  }
  line = "\n" + line + "\n";  // the first ends what was cut off
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t written = ::write(descriptor_.get(), line.data() + done, line.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EAGAIN && errno != EINTR) {
      throw Failure(fmt::format("the other end does not listen: {}", error_text(errno)));
    } else if (!wait(POLLOUT, until)) {
      throw Failure("the other end does not listen");
    }
  }
}

std::optional<std::string> Lines::take_line() {
  const auto end = received_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

bool Lines::read(google::protobuf::Message* message, Clock::time_point until) {
  for (;;) {
    while (const auto line = take_line()) {
      message->Clear();
      if (line->empty()) continue;
      google::protobuf::util::JsonParseOptions options;
      options.ignore_unknown_fields = true;
      if (google::protobuf::util::JsonStringToMessage(*line, message, options).ok()) return true;
    }
    if (received_.size() > kLongest) throw Failure("the other end sends a line without end");
    std::array<char, 4096> bytes;
    const ssize_t got = ::read(descriptor_.get(), bytes.data(), bytes.size());
    if (got > 0) {
      received_.append(bytes.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      throw Failure("the other end has gone");
    } else if (errno != EAGAIN && errno != EINTR) {
      throw Failure(fmt::format("the other end has gone: {}", error_text(errno)));
    } else if (!wait(POLLIN, until)) {
      return false;
    }
  }
}

}  // namespace ferry::host
