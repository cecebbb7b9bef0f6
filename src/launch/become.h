#pragma once

#include <string>
#include <vector>

namespace ferry::launch {

// Runs the program of this path in place of this one; the first argument is its name. Throws
// Failure.
[[noreturn]] void become(const std::string& path, const std::vector<std::string>& arguments);

}  // namespace ferry::launch
