#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "precopy/lazy_socket.h"
#include "precopy/page_ranges.h"
#include "precopy/page_store.h"

namespace ferry::precopy {

// Gives a program that CRIU restores (lazy_socket.h) the pages that its image leaves out.
//
// What the restore itself touches is served at once. The other pages are filled in while the program is held, but for
// long ranges, which somebody else may fill in while the program runs (src/late_pages).
class PageServer {
 public:
  // What a process lacks, and its userfaultfd, which tells of all that the process does to its memory
  // (UFFD_FEATURE_EVENT_*).
  struct Later {
    std::int32_t process = 0;
    UniqueFd userfaultfd;
    PageRanges pages;
  };

  // Listens in `directory`. `pages`: those that each process lacks, all of them in `store`, which
  // outlives this. Throws std::runtime_error.
  PageServer(const std::string& directory, const PageStore& store,
             std::map<std::int32_t, PageRanges> pages);
  ~PageServer();

  // The program is restored and held: fills in what it has to have before it goes on, and gives the rest, which is
  // empty or worth to be filled in later. Throws std::runtime_error: then it must not go on.
  std::vector<Later> fill(std::chrono::milliseconds limit);
  // What fill() has left, while the program is still held.
  void fill_now(const std::vector<Later>& later);

 private:
  struct Piece {
    std::int32_t process;
    int userfaultfd;
    std::uint64_t start, end;
  };

  void serve();
  void take_process();
  void serve_fault(std::int32_t process, int userfaultfd);
  void copy(std::int32_t process, int userfaultfd, std::uint64_t start, std::uint64_t end) const;
  void fail(const std::string& why);
  std::map<std::int32_t, int> wait_for_processes(std::chrono::milliseconds limit);
  PageRanges later_of(std::int32_t process, int userfaultfd) const;
  static void cut(std::int32_t process, int userfaultfd, const PageRanges& pages,
                  std::vector<Piece>* pieces);
  void copy_all(const std::vector<Piece>& pieces);
  void end();

  const PageStore& store_;
  const std::map<std::int32_t, PageRanges> pages_;
  LazySocket socket_;  // until CRIU has ended: it says goodbye there
  int wake_ = -1;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int32_t, UniqueFd> userfaultfds_;
  std::string failure_;
  std::thread server_;
};

}  // namespace ferry::precopy
