#pragma once

#include <string>

namespace ferry::cli {

// ferry checkpoints DIR, and its commands. Give the exit status; throw Failure.
int checkpoints(const std::string& directory, bool json);
// `id` empty: of all that are complete.
int checkpoints_verify(const std::string& directory, const std::string& id);
int checkpoints_remove(const std::string& directory, const std::string& id);

}  // namespace ferry::cli
