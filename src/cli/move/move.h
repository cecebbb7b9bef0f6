#pragma once

#include <string>
#include <vector>

#include "host/peers/messages.h"

namespace ferry::cli {

// `ferry move PROGRAM... --to HOST`; several move as one. `json`: prints the report as JSON: for one program a
// MoveReport, for several a GroupReport (ferry.proto), with --dry-run a MovePlan or a GroupPlan. `events`: prints each
// MoveProgress as a line of JSON on stderr, with the time, and a last one whose phase is "moved", "failed", or with
// --dry-run "checked". `timeline`: the file that a trace of the move is written to (timeline.h); empty: none. SIGINT
// gives the move up. Both functions throw Failure.
int move(const v1::MoveRequest& request, bool json, bool events, const std::string& timeline);
// Gives up the moves of these programs.
int cancel(const std::vector<std::string>& programs);

}  // namespace ferry::cli
