#include "base/failure.h"

#include <cstdint>
#include <system_error>

namespace ferry {

std::string error_text(int error) {
  return std::generic_category().message(error);
}

std::string printable(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = byte < 0x80                    ? 1
                               : byte >= 0xC2 && byte <= 0xDF ? 2
                               : byte >= 0xE0 && byte <= 0xEF ? 3
                               : byte >= 0xF0 && byte <= 0xF4 ? 4
                                                              : 0;
    bool valid = length > 0 && i + length <= text.size() && byte >= 0x20 && byte != 0x7F;
    std::uint32_t code = length > 1 ? byte & (0x7Fu >> length) : byte;
    for (std::size_t k = 1; valid && k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      valid = (next & 0xC0) == 0x80;
      code = code << 6 | (next & 0x3F);
    }
    // Overlong forms, surrogates, C1 controls and what lies behind Unicode.
    valid = valid && !(length == 2 && code < 0xA0) && !(length == 3 && code < 0x800) &&
            !(code >= 0xD800 && code <= 0xDFFF) &&
            !(length == 4 && (code < 0x10000 || code > 0x10FFFF));
    if (valid)
      result.append(text, i, length);
    else
      result += '?';
    i += valid ? length : 1;
  }
  return result;
}

std::string one_line(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string::npos) return {};
  std::string line = text.substr(begin, text.find('\n', begin) - begin);
  line.erase(line.find_last_not_of(" \t\r") + 1);
  return line;
}

}  // namespace ferry
