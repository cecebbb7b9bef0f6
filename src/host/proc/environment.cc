#include "host/proc/environment.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>

#include "base/job_name.h"

namespace ferry::host {
namespace {

constexpr std::size_t kMost = 1 << 20;  // bytes: an environment may have any size

}  // namespace

Environment::Environment(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/environ", pid), std::ios::binary);
  std::array<char, 4096> piece;
  while (text_.size() < kMost) {
    file.read(piece.data(), piece.size());
    text_.append(piece.data(), static_cast<std::size_t>(file.gcount()));
    if (!file) break;
  }
}

std::optional<std::string_view> Environment::get(std::string_view name) const {
  const std::string_view text = text_;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    const std::string_view entry = text.substr(begin, end - begin);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
    begin = end + 1;
  }
  return std::nullopt;
}

std::string job_of(pid_t pid) {
  const Environment environment(pid);
  return job_in([&](std::string_view name) { return environment.get(name); });
}

}  // namespace ferry::host
