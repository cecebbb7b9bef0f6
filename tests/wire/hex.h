#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ferry::wire {

// Bytes from hexadecimal digits; everything else is only there for the reader.
inline std::vector<std::byte> from_hex(std::string_view text) {
  std::vector<std::byte> bytes;
  int high = -1;
  for (char c : text) {
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) continue;
    if (high < 0) {
      high = digit;
    } else {
      bytes.push_back(static_cast<std::byte>(high << 4 | digit));
      high = -1;
    }
  }
  return bytes;
}

}  // namespace ferry::wire
