#pragma once

#include <string>
#include <vector>

namespace ferry::launch {

// `ferry run [--netdev DEV] [--] PROGRAM ARGS...`: becomes the program, with libferry.so preloaded.
// Returns only to fail: throws Failure.
int run(const std::vector<std::string>& arguments);

// Why libferry.so cannot get into this program, in one line; empty when it can. `path`: the
// program's file.
std::string unsuitable(const std::string& path);

}  // namespace ferry::launch
