#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"

// A container's root filesystem, as its image and its mounts make it. Its links may point anywhere:
// they are followed as the container would, never out of it.
namespace ferry::oci {

class Root {
 public:
  explicit Root(UniqueFd folder) : folder_(std::move(folder)) {}
  // Throws std::system_error.
  static Root at(const std::string& path);

  // As openat2() inside the root; an empty descriptor and errno when there is no such file.
  UniqueFd open(std::string_view path, int flags) const;
  // Opens for reading, and only regular files: other files may do something when they are opened.
  UniqueFd open_file(std::string_view path) const;
  bool has(std::string_view path) const;
  // Gives at most `most` bytes of a file; nothing when it cannot be read.
  std::optional<std::string> read(std::string_view path, std::size_t most) const;

  // Where the dynamic linker of the root would find a library: by /etc/ld.so.cache, else in the
  // folders that are searched without it. Nothing: it would not.
  std::optional<std::string> find_library(std::string_view soname) const;

 private:
  UniqueFd folder_;
};

}  // namespace ferry::oci
