#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "late_pages/content.h"
#include "late_pages/lacking.h"

struct uffd_msg;

namespace ferry::late_pages {

// A process that goes on without all of its pages. The userfaultfd does not block, and tells of fork(), mremap(),
// madvise() and munmap() (UFFD_FEATURE_EVENT_*).
struct Process {
  pid_t pid = 0;  // 0: not known
  UniqueFd userfaultfd;
  std::shared_ptr<const Content> content;
  Lacking lacking;
};

// Fills in what restored processes lack while they run: first what they wait for, then all else. Until one waits, for a
// moment at most, nothing is filled in: CRIU needs the processors to let them go on. What their children lack, which
// have been made meanwhile, comes after that, unless they wait for it.
class Filler {
 public:
  // `forked`: is told of the userfaultfd of each such child.
  Filler(std::list<Process> processes, std::function<void(int userfaultfd)> forked);
  // Returns when each process has all of its pages, or has ended. Throws std::runtime_error: one can never have all.
  void run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Work {
    explicit Work(Process from) : process(std::move(from)) {}

    Process process;
    std::deque<std::uint64_t> awaited;  // pages that a thread waits for
    std::uint64_t awaited_end = 0;      // of what was filled in last for a thread that waited,
    std::uint64_t ahead = 0;            // and how much that was
    std::uint64_t at = 0;               // where to go on
    bool is_child = false;
    bool is_over = false;  // it has ended
    bool has_unmapped = false;
    std::optional<Clock::time_point> out_of_memory;  // since when
    // Of an epoch (lacking.h): events have been read, and these children are made. They have to wait for its end.
    bool is_open = false, waits_for_parent = false;
    std::vector<Work*> children;
  };
  enum class Step {
    kDone,
    kHeldUp,   // by an event that is to be read first, or by want of memory
    kNothing,  // is to be done
  };

  bool is_done() const;
  void read_events(int timeout_ms);
  void take(Work& work, const uffd_msg& message);
  void add_child(Work& work, UniqueFd userfaultfd);
  void drop_ended();
  static void end(Work& work);
  static void settle(Work& work);
  static Step fill_some(Work& work, bool all);
  static Step fill_awaited(Work& work);
  static Step copy(Work& work, const Range& range, std::uint64_t most);
  static Step fill_with_zeros(Work& work, std::uint64_t page);

  const std::function<void(int userfaultfd)> forked_;
  bool is_touched_ = false;  // a thread has waited for a page
  std::list<Work> works_;
};

}  // namespace ferry::late_pages
