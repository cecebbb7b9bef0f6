#pragma once

#include <set>
#include <string>

namespace ferry::host {

// The builds of libferry.so that programs may run with: SHA-256 digests in a file, as sha256sum prints them. An empty
// line, and one that begins with '#', says nothing.
class TrustedLibraries {
 public:
  // Throws Failure, one line with the number of the bad one. An empty path: all are trusted.
  static TrustedLibraries load(const std::string& path);

  bool are_all() const { return file_.empty(); }
  bool has(const std::string& digest) const { return are_all() || digests_.contains(digest); }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::set<std::string> digests_;
};

}  // namespace ferry::host
