#pragma once

#include <string>

#include "ferry.pb.h"

namespace ferry::cli {

// What `ferry ps` prints: a line for each device of each program. Programs that move, and those
// without a device, have one too. `jobs`: with the job of each.
std::string programs_text(const v1::PsReply& reply, bool jobs);

// What `ferry ps --qps` prints: a line for each queue pair.
std::string queue_pairs_text(const v1::PsReply& reply);

// Leaves the programs of this job.
void keep_job(const std::string& job, v1::PsReply* reply);

}  // namespace ferry::cli
