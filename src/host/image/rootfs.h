#pragma once

#include <cstdint>
#include <string>

namespace ferry::host {

// The root filesystem of a container that is copied with its move.
struct Rootfs {
  std::string folder;
  std::uint64_t bytes = 0;  // on the source's disk
};

}  // namespace ferry::host
