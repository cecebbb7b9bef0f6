#include "host/attestation/trusted_libraries.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>

#include "base/failure.h"
#include "base/net.h"

namespace ferry::host {
namespace {

constexpr std::size_t kDigits = 64;

bool is_digest(const std::string& text) {
  return text.size() == kDigits && std::all_of(text.begin(), text.end(), [](unsigned char each) {
           return std::isdigit(each) || (each >= 'a' && each <= 'f');
         });
}

}  // namespace

TrustedLibraries TrustedLibraries::load(const std::string& path) {
  TrustedLibraries trusted;
  if (path.empty()) return trusted;
  trusted.file_ = path;
  std::ifstream file(path);
  if (!file) throw Failure(fmt::format("cannot read {}: {}", path, error_text(errno)));
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::string digest = line.substr(0, line.find(' '));
    if (!is_digest(digest)) {
      throw Failure(
          fmt::format("{}, line {}, has no SHA-256 in hexadecimal; make the file with: sha256sum",
                      path, number));
    }
    trusted.digests_.insert(digest);
  }
  return trusted;
}

}  // namespace ferry::host
