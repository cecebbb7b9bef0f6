#pragma once

#include <cstdint>
#include <string>

#include "ferry.pb.h"

namespace ferry::cli {

// Prints the moves of this host. `program`: of this name, or of every name if empty; `limit`: the
// latest ones, or all if 0. Throws Failure.
int history(const std::string& program, std::uint32_t limit, bool json);

// What history() prints for people: a line for each move.
std::string history_text(const v1::HistoryReply& reply);

}  // namespace ferry::cli
