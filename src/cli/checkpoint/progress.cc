#include "cli/checkpoint/progress.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>

#include "cli/text/size.h"
#include "ferry.pb.h"

namespace ferry::cli {
namespace {

constexpr double kMinute = 60, kHour = 3600;

// "9 s", "4 min", "2.5 h"
std::string duration_text(double seconds) {
  if (seconds < 2 * kMinute) return fmt::format("{:.0f} s", std::ceil(seconds));
  if (seconds < 2 * kHour) return fmt::format("{:.0f} min", seconds / kMinute);
  return fmt::format("{:.1f} h", seconds / kHour);
}

}  // namespace

std::string text_of(const v1::CheckpointProgress& progress) {
  std::string text = progress.phase();
  if (progress.phase() == "stop") text += ", the programs stand still";
  if (progress.phase() == "go on" && progress.standstill_ms() > 0) {
    text += fmt::format(", standstill {:.1f} ms", progress.standstill_ms());
  }
  if (progress.total_bytes() == 0) return text;
  text += fmt::format(", {} of {}", size_text(progress.done_bytes()),
                      size_text(progress.total_bytes()));
  if (progress.bytes_per_second() >= 1) {
    text +=
        fmt::format(", {}/s", size_text(static_cast<std::uint64_t>(progress.bytes_per_second())));
  }
  if (progress.left_seconds() > 0) {
    text += fmt::format(", {} left", duration_text(progress.left_seconds()));
  }
  return text;
}

}  // namespace ferry::cli
