#pragma once

#include <istream>
#include <string>
#include <vector>

#include "host/timeline/timeline.h"

namespace ferry::host {

// Adds what CRIU did, by its log, whose lines begin with the seconds since CRIU began to write it:
//
//   (00.012345)  123: Dumping task (pid: 123 comm: ib_send_bw)
//
// A line says what CRIU is about to do, or has done. So each line becomes a span that lasts until the next one; spans
// of less than 0.1 ms are left out. CRIU has written the line "Running SCRIPT scripts" when the span of that name in
// kScriptLane began: without that line, or that span, nothing is added.
void add_log(std::istream& log, const std::string& script, std::vector<Timeline::Span>* spans);

}  // namespace ferry::host
