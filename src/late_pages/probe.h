#pragma once

#include <sys/types.h>

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
// A page to ask for whether the process has memory: no address is too low for the kernel (mmap_min_addr).
inline constexpr std::uint64_t kAnywhere = 1 << 20;
// The same while an event is outstanding, by /proc/PID/smaps: whether the page is in memory that is registered.
bool is_registered_in(pid_t pid, std::uint64_t page);

}  // namespace ferry::late_pages
