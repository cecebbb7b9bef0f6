#pragma once

#include <string>

#include "ferry.pb.h"

namespace ferry::cli {

// What `ferry ps` prints: a line for each device of each program. Programs that move, and those
// without a device, have one too.
std::string programs_text(const v1::PsReply& reply);

// What `ferry ps --qps` prints: a line for each queue pair.
std::string queue_pairs_text(const v1::PsReply& reply);

}  // namespace ferry::cli
