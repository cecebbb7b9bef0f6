#pragma once

#include <string>

namespace ferry::cli {

// Asks the ferry-piped of this host by a line of words (src/pipe/policy/command.h): what it answers. Throws Failure,
// also where ferry-piped says that it cannot be done.
std::string ask_piped(const std::string& line);

}  // namespace ferry::cli
