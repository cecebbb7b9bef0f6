#include "cli/live/events.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <chrono>
#include <cstdio>

namespace ferry::cli {

void print_event(nlohmann::ordered_json event, const std::string& failure) {
  event["failure"] = failure;
  const auto now = std::chrono::system_clock::now();
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  event["time"] = fmt::format("{:%FT%T}.{:03}Z", fmt::gmtime(now), ms);
  fmt::print(stderr, "{}\n", event.dump());
  std::fflush(stderr);
}

}  // namespace ferry::cli
