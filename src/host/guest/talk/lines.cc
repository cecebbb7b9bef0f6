#include "host/guest/talk/lines.h"

#include <utility>

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include "base/failure.h"

namespace ferry::host {

Lines::Lines(UniqueFd descriptor) : channel_(std::move(descriptor)) {}

void Lines::write(const google::protobuf::Message& message, Clock::time_point until) {
  std::string line;
  if (!google::protobuf::util::MessageToJsonString(message, &line).ok()) {
    throw Failure("a message cannot be written as JSON");
  }
  channel_.write("\n" + line + "\n", until);  // the first "\n" ends what was cut off
}

bool Lines::read(google::protobuf::Message* message, Clock::time_point until) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  while (const auto line = channel_.read(until)) {
    message->Clear();
    if (!line->empty() &&
        google::protobuf::util::JsonStringToMessage(*line, message, options).ok()) {
      return true;
    }
    if (Clock::now() >= until) break;  // the other end may send nothing but such lines
  }
  return false;
}

}  // namespace ferry::host
