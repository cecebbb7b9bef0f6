#include "host/image/image_room.h"

#include <fmt/core.h>
#include <sys/statvfs.h>

#include <algorithm>

#include "base/failure.h"
#include "host/proc/process_tree.h"

namespace ferry::host {

std::uint64_t ImageRoom::available() const {
  const std::uint64_t free = available_memory();
  return memory_limit_ == 0 ? free : std::min(free, memory_limit_);
}

std::string ImageRoom::folder_of(std::uint64_t move_id) const {
  return fmt::format("{}/{:016x}", directory_, move_id);
}

void ImageRoom::need(std::uint64_t bytes) const {
  constexpr std::uint64_t kBeside = 1 << 20;  // bytes for all that is not memory
  struct statvfs room {};
  if (::statvfs(directory_.c_str(), &room) != 0) return;  // whoever writes there will see the error
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  if (free >= bytes + kBeside) return;
  throw Failure(
      fmt::format("not enough room in {} on {}: {} MiB needed, {} MiB free; make some, or give "
                  "another --image-dir",
                  directory_, host_, (bytes + kBeside) >> 20, free >> 20));
}

}  // namespace ferry::host
