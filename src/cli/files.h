#pragma once

#include <sys/types.h>

#include <string>

#include "base/failure.h"

// Files that commands read and write. All throw Failure.
namespace ferry::cli {

// A Failure that says `what`, and errno, in one line.
Failure cannot(const std::string& what);

std::string read_file(const std::string& path);
void write_all(int file, const std::string& text, const std::string& path);
// Writes a file, which is durable before it takes the place of `path`. Others can read it at no time, but as `mode`
// lets them.
void write_file(const std::string& path, const std::string& text, mode_t mode);

}  // namespace ferry::cli
