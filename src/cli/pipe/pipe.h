#pragma once

#include <string>

namespace ferry::cli {

// Asks ferry-piped by a line of words (src/pipe/policy/command.h). Throws Failure.
int pipe_change(const std::string& line);
// What the pipe has: programs, connections, rules and limits.
int pipe_ps(bool json);
// From ferry-piped's JSON.
std::string pipe_text(const std::string& report);

}  // namespace ferry::cli
