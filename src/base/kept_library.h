#pragma once

#include <string>

// Copies of libferry.so that no upgrade touches, BUILD_ID/libferry.so each: CRIU dumps a mapped file
// by its path, so a program whose library is replaced cannot move any more. The package ferry makes
// and removes them (install/ferry-library).
namespace ferry {

inline constexpr char kKeptLibraries[] = "/var/lib/ferry-library";

// The copy in `folder` of this library; the library itself when there is none, or when somebody but
// root can write to it.
std::string kept_library(const std::string& library, const std::string& folder = kKeptLibraries);

// Whether the file is such a copy.
bool is_kept_library(const std::string& file);

}  // namespace ferry
