#pragma once

#include <string>
#include <string_view>

// Fields at the end of a line of the log, which scripts read: " key=value". A value that is empty,
// or has blanks, '"', '=' or '\', stands between '"', with '\' before each '"' and '\' in it.
namespace ferry::log {

inline std::string field(std::string_view key, std::string_view value) {
  std::string text = " ";
  text.append(key).append("=");
  if (!value.empty() && value.find_first_of(" \t\"=\\") == std::string_view::npos) {
    return text.append(value);
  }
  text += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text += '"';
}

}  // namespace ferry::log
