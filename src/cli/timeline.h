#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <string>

namespace ferry::v1 {
class TimelineSpan;
}  // namespace ferry::v1

namespace ferry::cli {

using Timeline = google::protobuf::RepeatedPtrField<v1::TimelineSpan>;

// As JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open: the "Trace Event Format", with a process for each
// host and a thread for each lane. Times are microseconds from the earliest span on.
std::string trace_of(const Timeline& timeline);

// Throws Failure unless write_timeline() can write a file of this name.
void need_place_for_timeline(const std::string& path);
// Throws Failure.
void write_timeline(const std::string& path, const Timeline& timeline);

}  // namespace ferry::cli
