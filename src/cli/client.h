#pragma once

#include <optional>
#include <string>

// Talks to the ferryd of this host. All functions throw Failure.
namespace ferry::cli {

// `job`: with the job of each program; not empty: only those of this job.
int ps(bool json, bool queue_pairs, const std::optional<std::string>& job);
int resolve(const std::string& move_id, bool commit);

}  // namespace ferry::cli
