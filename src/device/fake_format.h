#pragma once

#include <array>
#include <cstdio>
#include <string>

namespace ferry::device::fake {

// Formats the details of a call as printf does, cut off after 255 characters.
template <typename... Arguments>
std::string format(const char* pattern, Arguments... arguments) {
  std::array<char, 256> line;
  std::snprintf(line.data(), line.size(), pattern, arguments...);
  return line.data();
}

}  // namespace ferry::device::fake
