#pragma once

#include <string>

namespace ferry::cli {

// ferry checkpoints DIR, and its commands. Give the exit status; throw Failure.
int checkpoints(const std::string& directory, bool json);
// `id` empty: of all that are complete. `key`: the file of a private key, with which what is encrypted is read; empty:
// its digests are compared, and that is said.
int checkpoints_verify(const std::string& directory, const std::string& id, const std::string& key);
int checkpoints_remove(const std::string& directory, const std::string& id);

}  // namespace ferry::cli
