#pragma once

#include <chrono>
#include <string>

#include "base/line_channel.h"
#include "base/unique_fd.h"

namespace google::protobuf {
class Message;
}

// Messages between a host's ferryd and a guest's, over a serial port of the machine (virtio-serial): each is a line of
// JSON. A serial port has no connections: what a former ferryd has left in it comes first, or the rest of a line that
// was cut off. Such a line is no message, and is dropped.
namespace ferry::host {

inline constexpr char kGuestPort[] = "org.ferry.0";  // the port's name in the guest

class Lines {
 public:
  using Clock = LineChannel::Clock;

  // `descriptor`: a socket or a character device, which is read and written without waiting from now on.
  explicit Lines(UniqueFd descriptor);

  // Throws Failure when the other end does not take it before `until`, or is not there.
  void write(const google::protobuf::Message& message, Clock::time_point until);
  // The next line that is such a message, into *message. False: there is none before `until`. Throws Failure when the
  // other end has gone, or sends a line that is too long (LineChannel::kLongest).
  bool read(google::protobuf::Message* message, Clock::time_point until);

 private:
  LineChannel channel_;
};

}  // namespace ferry::host
