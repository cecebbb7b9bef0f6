#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ferry::host {

// What programs need at their destination.
struct Weight {
  std::uint64_t resident_bytes = 0, image_bytes = 0;
};

// The programs of other hosts that move with those of a group (src/host/move/several).
struct Others {
  struct Source {
    std::string host;
    std::uint32_t programs = 0;
  };
  std::uint64_t group = 0;      // id of all
  std::vector<Source> sources;  // all, this host too; the programs are numbered in this order
  std::size_t here = 0;         // which of these is this host
  Weight weight;                // of the programs of other hosts

  // How many programs there are before those of the source with this index; with that of none: in all.
  std::size_t before(std::size_t source) const {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < source; ++i) sum += sources[i].programs;
    return sum;
  }
};

}  // namespace ferry::host
