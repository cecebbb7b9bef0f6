#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "precopy/page_ranges.h"
#include "precopy/page_store.h"

namespace ferry::precopy {

// Gives a program that CRIU restores (criu restore --lazy-pages) the pages that its image leaves
// out. CRIU connects to a UNIX socket in the image's folder and sends, for each process, its pid
// and a userfaultfd:
//
//   { pid:32 descriptor (SCM_RIGHTS, with a byte of its own) | -1:32 (none) } "RSTF":32
//
// All pages are filled in before the program goes on, while it is held: after that nothing depends
// on this process any more, and no page is missing if it dies. What the restore itself touches
// before is served at once.
class PageServer {
 public:
  // Listens in `directory`. `pages`: those that each process lacks, all of them in `store`, which
  // outlives this. Throws std::runtime_error.
  PageServer(const std::string& directory, const PageStore& store,
             std::map<std::int32_t, PageRanges> pages);
  ~PageServer();

  // The program is restored and held: fills in everything and lets go of it. Throws
  // std::runtime_error: then it must not go on.
  void fill(std::chrono::milliseconds limit);

 private:
  void serve();
  bool take_process();
  void serve_fault(std::int32_t process, int userfaultfd);
  void copy(std::int32_t process, int userfaultfd, std::uint64_t start, std::uint64_t end) const;
  void fail(const std::string& why);
  void end();

  const PageStore& store_;
  const std::map<std::int32_t, PageRanges> pages_;
  int listener_ = -1, wake_ = -1;
  int connection_ = -1;  // until CRIU has ended: it says goodbye there
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int32_t, int> userfaultfds_;
  std::string failure_;
  std::thread server_;
};

}  // namespace ferry::precopy
