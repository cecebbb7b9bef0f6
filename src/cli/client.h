#pragma once

#include <string>
#include <vector>

#include "host/peers/messages.h"

// Talks to the ferryd of this host.
namespace ferry::cli {

// `ferry move PROGRAM... --to HOST`; several move as one. `json`: the report is JSON, of one
// program a MoveReport, of several a GroupReport (ferry.proto), with --dry-run a MovePlan or a
// GroupPlan; `events`: each MoveProgress as a line of JSON on stderr, with the time, and a last one
// whose phase is "moved" or "failed". SIGINT gives the move up. All of these throw Failure.
int move(const v1::MoveRequest& request, bool json, bool events);
// Gives up the moves of these programs.
int cancel(const std::vector<std::string>& programs);
int ps(bool json, bool queue_pairs);
int resolve(const std::string& move_id, bool commit);

}  // namespace ferry::cli
