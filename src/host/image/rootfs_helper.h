#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace ferry::host {

// A process of ferry-rootfs (rootfs/frames.h) for one folder. It ends with this object.
class RootfsHelper {
 public:
  enum class Task { kPack, kUnpack };
  // `log`: gets its stderr. Throws Failure.
  RootfsHelper(const std::string& program, Task task, const std::string& folder,
               const std::string& log);
  ~RootfsHelper();

  // For kPack: one pass; `sink` gets the archive, and `anyway` has files that are sent even if they
  // seem unchanged. Throws Failure, and what `sink` throws; then this object is of no use any more.
  using Sink = std::function<void(std::span<const std::byte>)>;
  void pack(const std::set<std::string>& anyway, const Sink& sink);

  // For kUnpack: take an archive piece by piece, and its end, after which all is in the folder.
  // Give 0 or errno.
  int unpack(std::span<const std::byte> piece);
  int end_archive();

 private:
  int end();

  const std::string folder_, log_;
  UniqueFd socket_;
  pid_t pid_ = -1;
};

}  // namespace ferry::host
