#pragma once

#include <string>
#include <vector>

#include "host/timeline/timeline.h"

namespace ferry::v1 {
class GuestReply;
}

namespace ferry::host {

inline constexpr int kMostGuestSpans = 500;  // of an answer

// What a guest says it has done, by the clock of this host: the answer came at `received`, and took no time. The clock
// of a guest stands still with its machine: what the guest did before the machine was paused comes with an answer from
// before. Spans that cannot be are left out.
std::vector<Timeline::Span> guest_spans(const v1::GuestReply& reply, const std::string& machine,
                                        Timeline::Clock::time_point received);

}  // namespace ferry::host
