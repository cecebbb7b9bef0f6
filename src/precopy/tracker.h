#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "precopy/page_ranges.h"

// Which pages of a process have been written since they were read, told by the kernel: a
// userfaultfd that the process itself has made and given away (WP_ASYNC), and PAGEMAP_SCAN.
namespace ferry::precopy {

// The private anonymous mappings of a process: what CRIU leaves to a lazy-pages server. Everything
// else (files, shared memory, huge pages of hugetlbfs) CRIU dumps itself. Throws
// std::runtime_error.
PageRanges private_memory(pid_t pid);

// Those of them that can be executed. CRIU has the process execute system calls in its first executable mapping while
// it dumps, for which it writes them there.
PageRanges executable_memory(pid_t pid);

// True when something writes to the process's memory without the kernel noticing which page: I/O by
// DMA (O_DIRECT, the old asynchronous I/O) into pages that were looked up before they were
// protected.
bool writes_unseen(pid_t pid);

// The mappings of a process that mlock() keeps in memory. Throws std::runtime_error.
PageRanges locked_memory(pid_t pid);

// False: the kernel cannot tell which pages have been written (Linux before 6.7).
bool can_track();

class Tracker {
 public:
  // Takes the userfaultfd; -1: nothing can be tracked, and all memory is always dirty.
  Tracker(pid_t pid, int userfaultfd) : pid_(pid), userfaultfd_(userfaultfd) {}
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;
  // From now on the program is not slowed down any more.
  ~Tracker();

  struct Look {
    PageRanges memory;  // as private_memory() gives it
    PageRanges dirty;   // pages of it that were not here at the last take(), or written since then
  };
  // Gives what is dirty, and makes it clean: a page that is read after this and then written is
  // dirty again. Throws std::runtime_error.
  Look take();
  // What is dirty now.
  Look look() const;
  // The pages that are there and not dirty. Throws std::runtime_error.
  PageRanges clean() const;

  pid_t pid() const { return pid_; }
  bool tracks() const { return userfaultfd_ >= 0; }

 private:
  const pid_t pid_;
  const int userfaultfd_;
};

}  // namespace ferry::precopy
