#include "host/units/vm/guest_spans.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "guest.pb.h"
#include "host/units/vm/guest_talk.h"

namespace ferry::host {
namespace {

constexpr std::uint64_t kOldest = 3'600'000'000;  // microseconds before the answer

}  // namespace

std::vector<Timeline::Span> guest_spans(const v1::GuestReply& reply, const std::string& machine,
                                        Timeline::Clock::time_point received) {
  std::vector<Timeline::Span> spans;
  const auto here = [&](std::uint64_t time) {
    return received - std::chrono::microseconds(reply.now_us() - time);
  };
  for (int i = 0; i < std::min(reply.spans_size(), kMostGuestSpans); ++i) {
    const auto& span = reply.spans(i);
    if (span.begin_us() > span.end_us() || span.end_us() > reply.now_us() ||
        reply.now_us() - span.begin_us() > kOldest) {
      continue;
    }
    spans.push_back({fmt::format("in {}: {}", machine, guest_text(span.lane())),
                     guest_text(span.name()), here(span.begin_us()), here(span.end_us())});
  }
  return spans;
}

}  // namespace ferry::host
