#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ferry.grpc.pb.h"

// Talks to the ferryd of this host.
namespace ferry::cli {

// `ferry move PROGRAM... --to HOST [--force] [--json]`; several move as one. The JSON of one
// program is a MoveReport, of several a GroupReport (ferry.proto). All of these throw
// migrate::Failure.
int move(const std::vector<std::string>& programs, const std::string& to, bool force, bool json);
int ps(bool json);
int resolve(const std::string& move_id, bool commit);

}  // namespace ferry::cli
