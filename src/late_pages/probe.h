#pragma once

#include <cstdint>

namespace ferry::late_pages {

// What the kernel says of a page, which this leaves as it is.
enum class Probed {
  kMapped,       // in memory that is registered with the userfaultfd; the page is there or not
  kNotMapped,    // nor in such memory, or not at all
  kOutstanding,  // an event is to be read first, or its operation has not ended yet
  kNoMemory,     // the process has ended, or executes another program
};
Probed probe(int userfaultfd, std::uint64_t page);

}  // namespace ferry::late_pages
