#include "late_pages/lacking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

// What Lacking makes of events, against a kernel that is played: threads of a program map, unmap, move and drop their
// memory, and fork. Each waits until its event is read; events of several threads are read in any order.
namespace ferry::late_pages {
namespace {

using precopy::kPage;
constexpr std::uint64_t kPages = 48;
constexpr int kThreads = 3, kFree = -1;

struct Page {
  int owner = kFree;           // the thread that may change it
  bool is_registered = false;  // with the userfaultfd; false: mapped since, or not mapped
  bool is_there = false;       // touched, or filled in
  std::uint64_t lacks = 0;     // the content that has to be filled in; 0: none
};
using Memory = std::array<Page, kPages>;

struct Child {
  Memory memory;
  std::optional<Lacking> lacking;  // from when its event is read
};

class PlayedKernel {
 public:
  struct Kind {
    bool is_old;  // mremap() tells the length of before, as in kernels before 6.15
    // The program forks; else it moves memory over other memory of its own (MREMAP_FIXED). What a child has that is
    // made beside such a move, and beside another one to where that leaves, no event tells.
    bool forks;
  };
  PlayedKernel(unsigned seed, Kind kind) : kind_(kind), random_(seed) {
    precopy::PageRanges pages;
    for (std::uint64_t page = 0; page < kPages; ++page) {
      const int owner = static_cast<int>(page * kThreads / kPages);
      if (page % 4 == 3) continue;  // free
      const bool lacks = any(8) != 0;
      memory_[page] = {owner, true, !lacks && any(2) == 0, lacks ? address(page) : 0};
      if (lacks) pages.add(address(page), address(page + 1));
    }
    lacking_ = Lacking(pages);
  }

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      const std::size_t thread = any(kThreads);
      if (!events_[thread].empty()) {
        const auto event = std::move(events_[thread].front());
        events_[thread].pop_front();
        event();
      } else if (any(3) == 0) {
        begin(static_cast<int>(thread));
      }
      const bool is_settled = std::all_of(events_.begin(), events_.end(),
                                          [](const auto& events) { return events.empty(); });
      if (is_settled && any(2) == 0) settle();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  std::string trace;

 private:
  static std::uint64_t address(std::uint64_t page) { return (page + 16) * kPage; }
  std::uint64_t any(std::uint64_t below) { return random_() % below; }
  void tell(int thread, const std::string& what, std::uint64_t a, std::uint64_t b,
            std::uint64_t c = 0) {
    trace += std::to_string(thread) + ": " + what + " " + std::to_string(a) + " " +
             std::to_string(b) + " " + std::to_string(c) + "\n";
  }
  void add_event(int thread, const std::string& what, std::uint64_t a, std::uint64_t b,
                 std::uint64_t c, std::function<void()> event) {
    events_[static_cast<std::size_t>(thread)].push_back([this, thread, what, a, b, c, event] {
      tell(thread, "read " + what, a, b, c);
      event();
    });
  }
  void add_unmap(int thread, std::uint64_t from, std::uint64_t to) {
    add_event(thread, "UNMAP", from, to, 0, [this, from, to] {
      lacking_.unmapped(address(from), address(to));
      for (auto& child : children_) {
        if (child.lacking) child.lacking->parent_unmapped(address(from), address(to));
      }
    });
  }

  static Lacking::IsMapped mapped_in(const Memory& memory) {
    return [&memory](std::uint64_t page) {
      return page < address(kPages) && memory[page / kPage - 16].is_registered;
    };
  }

  bool are_of(int owner, std::uint64_t from, std::uint64_t to) const {
    return to <= kPages && std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(from),
                                       memory_.begin() + static_cast<std::ptrdiff_t>(to),
                                       [&](const Page& page) { return page.owner == owner; });
  }
  bool is_some_registered(std::uint64_t from, std::uint64_t to) const {
    return std::any_of(memory_.begin() + static_cast<std::ptrdiff_t>(from),
                       memory_.begin() + static_cast<std::ptrdiff_t>(to),
                       [](const Page& page) { return page.is_registered; });
  }
  bool are_alike(std::uint64_t from, std::uint64_t to) const {
    return std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(from),
                       memory_.begin() + static_cast<std::ptrdiff_t>(to), [&](const Page& page) {
                         return page.is_registered == memory_[from].is_registered;
                       });
  }
  void unmap(std::uint64_t from, std::uint64_t to) {
    for (auto page = from; page < to; ++page) memory_[page] = {};
  }

  // An operation: what the kernel does at once, and the events that it queues then.
  void begin(int thread) {
    const std::uint64_t length = 1 + any(5), from = any(kPages - length);
    switch (any(6)) {
      case 0:  // munmap()
        if (!are_of(thread, from, from + length)) return;
        tell(thread, "munmap", from, from + length);
        if (is_some_registered(from, from + length)) add_unmap(thread, from, from + length);
        unmap(from, from + length);
        return;
      case 1:  // mmap()
        if (!are_of(kFree, from, from + length)) return;
        tell(thread, "mmap", from, from + length);
        for (auto page = from; page < from + length; ++page)
          memory_[page] = {thread, false, false, 0};
        return;
      case 2:  // madvise(): the kernel drops the pages when the event has been read
        if (!are_of(thread, from, from + length) || !is_some_registered(from, from + length))
          return;
        tell(thread, "madvise", from, from + length);
        add_event(thread, "REMOVE", from, from + length, 0, [this, from, length] {
          lacking_.removed(address(from), address(from + length));
          for (auto page = from; page < from + length; ++page) {
            dropped_.insert(memory_[page].lacks);
            memory_[page].lacks = 0;
            memory_[page].is_there = false;
          }
        });
        return;
      case 3:  // fork()
        if (!kind_.forks || any(3) != 0) return;
        tell(thread, "fork", 0, 0);
        children_.push_back({memory_, {}});
        add_event(thread, "FORK", 0, 0, 0, [this, child = children_.size() - 1] {
          children_[child].lacking = lacking_.forked(mapped_in(children_[child].memory));
        });
        return;
      default: move(thread, from, length);
    }
  }

  void move(int thread, std::uint64_t from, std::uint64_t length) {
    const std::uint64_t kept = any(3) == 0 ? 1 + any(length) : length, to = any(kPages - kept);
    if (to < from + length && from < to + kept) return;
    if (!are_of(thread, from, from + length) || !are_alike(from, from + length)) return;
    const bool is_over_own = are_of(thread, to, to + kept);
    if (is_over_own && kind_.forks) return;
    if (!is_over_own && !are_of(kFree, to, to + kept)) return;
    tell(thread, "mremap " + std::to_string(kept) + " of", from, from + length, to);
    const bool is_registered = memory_[from].is_registered;
    if (is_over_own && is_some_registered(to, to + kept)) add_unmap(thread, to, to + kept);
    if (is_registered) {
      const std::uint64_t told = kind_.is_old ? length : kept;
      add_event(thread, "REMAP", from, to, told, [this, from, to, told] {
        lacking_.moved(address(from), address(to), told * kPage, mapped_in(memory_));
        for (std::size_t child = 0; child < children_.size(); ++child) {
          auto& lacking = children_[child].lacking;
          if (lacking)
            lacking->parent_moved(address(from), address(to), told * kPage,
                                  mapped_in(children_[child].memory));
        }
      });
      if (kept < length) add_unmap(thread, from + kept, from + length);
      add_unmap(thread, from, from + kept);
    }
    for (std::uint64_t i = 0; i < kept; ++i) memory_[to + i] = memory_[from + i];
    unmap(from, from + length);
  }

  // No event is outstanding: what is lacking is what the kernel has not got.
  void settle() {
    lacking_.settle();
    trace += "settled\n";
    check(memory_, lacking_, "the program");
    for (const auto& child : children_) {
      ASSERT_TRUE(child.lacking.has_value());
      check(child.memory, *child.lacking, "a child");
    }
    children_.clear();
    dropped_.clear();
    for (int i = 0; i < 2; ++i) fill(any(kPages));
  }
  void check(const Memory& memory, const Lacking& lacking, const char* whose) {
    for (std::uint64_t page = 0; page < kPages; ++page) {
      if (!memory[page].is_registered || memory[page].is_there) continue;  // ENOENT, EEXIST
      const auto found = lacking.find(address(page));
      const std::uint64_t content = found ? found->content : 0;
      // A madvise() beside a fork() may have been before or after it.
      if (&memory != &memory_ && content * memory[page].lacks == 0 &&
          dropped_.contains(content + memory[page].lacks)) {
        continue;
      }
      ASSERT_EQ(content, memory[page].lacks) << whose << ", page " << page << "\n" << trace;
    }
  }
  void fill(std::uint64_t page) {
    if (!lacking_.find(address(page))) return;
    lacking_.filled(address(page), address(page + 1));
    memory_[page].lacks = 0;
    memory_[page].is_there = true;
    tell(-1, "filled", page, page + 1);
  }

  const Kind kind_;
  std::mt19937 random_;
  Memory memory_;
  Lacking lacking_;
  std::array<std::deque<std::function<void()>>, kThreads> events_;
  std::vector<Child> children_;
  std::set<std::uint64_t> dropped_;  // contents, in this epoch
};

TEST(Lacking, FindsWhatFollows) {
  precopy::PageRanges pages;
  pages.add(2 * kPage, 5 * kPage);
  pages.add(8 * kPage, 9 * kPage);
  const Lacking lacking(pages);
  EXPECT_FALSE(lacking.find(1 * kPage));
  EXPECT_EQ(lacking.find(3 * kPage), (Range{3 * kPage, 5 * kPage, 3 * kPage}));
  EXPECT_EQ(lacking.next(4 * kPage)->start, 4 * kPage);
  EXPECT_EQ(lacking.next(5 * kPage)->start, 8 * kPage);
  EXPECT_EQ(lacking.next(9 * kPage)->start, 2 * kPage);  // from the beginning again
  EXPECT_FALSE(Lacking().next(0));
}

void play(PlayedKernel::Kind kind) {
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    PlayedKernel kernel(seed, kind);
    kernel.run(400);
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed;
  }
}
TEST(Lacking, IsWhatTheKernelHasNotGot) {
  play({false, false});
}
TEST(Lacking, IsWhatAnOldKernelHasNotGot) {
  play({true, false});
}
TEST(Lacking, IsWhatTheKernelHasNotGotForChildren) {
  play({false, true});
}
TEST(Lacking, IsWhatAnOldKernelHasNotGotForChildren) {
  play({true, true});
}

}  // namespace
}  // namespace ferry::late_pages
