#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <string>
#include <vector>

#include "host/timeline/timeline.h"

namespace ferry::v1 {
class TimelineSpan;
}  // namespace ferry::v1

namespace ferry::host {

using TimelineMessage = google::protobuf::RepeatedPtrField<v1::TimelineSpan>;

// Of one program, and of a group: a report of so many is less than 4 MB, the most that gRPC takes unasked.
inline constexpr int kMostTold = 5'000;

// Times by the clock of this host.
void to_message(const std::vector<Timeline::Span>& spans, const std::string& host,
                TimelineMessage* message);

// Adds what another host has told, by the clock of this one. Nothing is added unless both have a span of kRestoreCall,
// by which the clocks are compared: that is as exact as the ways there and back take the same time. `own`: of the same
// program, here. Of names that are longer than 160 bytes the rest is left out.
void add_theirs(const std::vector<Timeline::Span>& own, const TimelineMessage& theirs,
                const std::string& host, TimelineMessage* message);

}  // namespace ferry::host
