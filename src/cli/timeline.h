#pragma once

#include <string>

#include "host/timeline/timeline_message.h"

namespace ferry::cli {

using Timeline = host::TimelineMessage;

// As JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open: the "Trace Event Format", with a process for each
// host and a thread for each lane. Times are microseconds from the earliest span on.
std::string trace_of(const Timeline& timeline);

// Throws Failure unless write_timeline() can write a file of this name.
void need_place_for_timeline(const std::string& path);
// Throws Failure.
void write_timeline(const std::string& path, const Timeline& timeline);

}  // namespace ferry::cli
