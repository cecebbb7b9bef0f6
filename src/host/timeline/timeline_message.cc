#include "host/timeline/timeline_message.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/failure.h"
#include "ferry.pb.h"

namespace ferry::host {
namespace {

constexpr std::size_t kLongestName = 160;
constexpr std::int64_t kLatest = std::int64_t{1} << 60;  // microseconds

std::int64_t in_microseconds(Timeline::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

bool is_plausible(const v1::TimelineSpan& span) {
  return span.begin_us() >= 0 && span.begin_us() <= span.end_us() && span.end_us() < kLatest;
}

std::optional<std::int64_t> middle(const v1::TimelineSpan& span) {
  if (span.lane() != kCallLane || span.name() != kRestoreCall) return std::nullopt;
  return span.begin_us() + (span.end_us() - span.begin_us()) / 2;
}

std::optional<std::int64_t> middle(const TimelineMessage& spans) {
  for (const auto& span : spans) {
    if (!is_plausible(span)) continue;
    if (const auto found = middle(span)) return found;
  }
  return std::nullopt;
}

}  // namespace

void to_message(const std::vector<Timeline::Span>& spans, const std::string& host,
                TimelineMessage* message) {
  for (const auto& span : spans) {
    auto* added = message->Add();
    added->set_host(host);
    added->set_lane(span.lane);
    added->set_name(span.name);
    added->set_begin_us(in_microseconds(span.begin));
    added->set_end_us(in_microseconds(std::max(span.begin, span.end)));
  }
}

void add_theirs(const std::vector<Timeline::Span>& own, const TimelineMessage& theirs,
                const std::string& host, TimelineMessage* message) {
  TimelineMessage mine;
  to_message(own, {}, &mine);
  const auto here = middle(mine), there = middle(theirs);
  if (!here || !there) return;
  const std::int64_t shift = *here - *there;
  for (const auto& span : theirs) {
    if (message->size() >= kMostTold) return;
    if (!is_plausible(span)) continue;
    auto* added = message->Add();
    added->set_host(host);
    added->set_lane(printable(span.lane().substr(0, kLongestName)));
    added->set_name(printable(span.name().substr(0, kLongestName)));
    added->set_begin_us(span.begin_us() + shift);
    added->set_end_us(span.end_us() + shift);
  }
}

}  // namespace ferry::host
