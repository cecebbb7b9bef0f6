#include "precopy/tracker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <vector>

#include "tracked_process.h"

namespace ferry::precopy {
namespace {

using test::TrackedProcess;

char* map(std::size_t bytes, int flags = 0) {
  return static_cast<char*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0));
}
unsigned long number(const void* pointer) {
  return reinterpret_cast<unsigned long>(pointer);
}

bool is_zero_page(int pagemap, std::uint64_t page) {
  struct {
    std::uint64_t start, end, categories;
  } region{};
  constexpr std::uint64_t kZeroPage = 1 << 5;
  std::array<std::uint64_t, 12> argument{
      96, 0, page, page + kPage, 0, reinterpret_cast<std::uint64_t>(&region),
      1,  0, 0,    kZeroPage,    0, kZeroPage};
  return ::ioctl(pagemap, _IOWR('f', 16, argument), argument.data()) == 1;
}

// Pages that are there, or swapped. By ranges: a sanitizer maps terabytes for itself.
PageRanges present(int pagemap, std::uint64_t start, std::uint64_t end) {
  struct Region {
    std::uint64_t start, end, categories;
  };
  constexpr std::uint64_t kPresent = 1 << 3, kSwapped = 1 << 4;
  std::array<Region, 256> regions;
  PageRanges pages;
  while (start < end) {
    std::array<std::uint64_t, 12> argument{96,
                                           0,
                                           start,
                                           end,
                                           0,
                                           reinterpret_cast<std::uint64_t>(regions.data()),
                                           regions.size(),
                                           0,
                                           0,
                                           0,
                                           kPresent | kSwapped,
                                           kPresent};
    const int count = ::ioctl(pagemap, _IOWR('f', 16, argument), argument.data());
    if (count < 0 || argument[4] <= start) break;
    for (int i = 0; i < count; ++i) pages.add(regions[i].start, regions[i].end);
    start = argument[4];
  }
  EXPECT_EQ(start, end);
  return pages;
}

// What a destination would have: pages as they were read after each take().
class Copy {
 public:
  explicit Copy(pid_t pid)
      : memory_(::open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDONLY)) {}
  ~Copy() { ::close(memory_); }

  // As CopyAhead does it: what cannot be read is gone, or owed.
  void read(const PageRanges& pages) {
    for (const auto& [start, end] : pages) {
      for (auto page = start; page < end; page += kPage) {
        std::vector<char> content(kPage);
        if (::pread(memory_, content.data(), kPage, static_cast<off_t>(page)) ==
            static_cast<ssize_t>(kPage))
          pages_[page] = content;
        else
          owed_.add(page, page + kPage);
      }
    }
  }
  void round(Tracker& tracker) {
    const auto look = tracker.take();
    PageRanges pages = owed_.within(look.memory);
    pages.add(look.dirty);
    owed_ = {};
    read(pages);
  }
  void last(Tracker& tracker) {
    const auto look = tracker.look();
    read(owed_.within(look.memory));
    read(look.dirty);
  }
  // Pages of the process, which stands still, that are not as they were copied.
  std::vector<std::uint64_t> wrong(pid_t pid, const PageRanges& memory) const {
    std::vector<std::uint64_t> pages;
    const int pagemap = ::open(("/proc/" + std::to_string(pid) + "/pagemap").c_str(), O_RDONLY);
    std::vector<char> content(kPage);
    const std::vector<char> zero(kPage);
    PageRanges there;
    for (const auto& [start, end] : memory) there.add(present(pagemap, start, end));
    for (const auto& [start, end] : there) {
      for (auto page = start; page < end; page += kPage) {
        EXPECT_EQ(::pread(memory_, content.data(), kPage, static_cast<off_t>(page)),
                  static_cast<ssize_t>(kPage));
        const auto copied = pages_.find(page);
        // The zero page is no page of CRIU's; to read beside a dropped page can map it there.
        if (content == zero && is_zero_page(pagemap, page)) continue;
        if (copied == pages_.end() ? content != zero : content != copied->second)
          pages.push_back(page);
      }
    }
    ::close(pagemap);
    return pages;
  }

 private:
  int memory_;
  std::map<std::uint64_t, std::vector<char>> pages_;
  PageRanges owed_;
};

#define NEED_TRACKING(process)                                \
  if ((process).userfaultfd() < 0)                            \
  GTEST_SKIP() << "this kernel cannot track what is written " \
                  "(6.7)"

TEST(Tracker, FindsWhatIsWritten) {
  char* memory = nullptr;
  TrackedProcess process([&](unsigned long page) -> unsigned long {
    if (memory == nullptr) {
      memory = map(64 * kPage);
      std::memset(memory, 1, 64 * kPage);
    } else {
      memory[page * kPage]++;
    }
    return number(memory);
  });
  NEED_TRACKING(process);
  const auto start = process.step(0);
  Tracker tracker(process.pid(), process.userfaultfd());
  EXPECT_TRUE(tracker.take().dirty.contains(start, start + 64 * kPage));
  process.step(5);
  process.step(63);
  const auto look = tracker.look();
  EXPECT_TRUE(look.dirty.contains(start + 5 * kPage, start + 6 * kPage));
  EXPECT_TRUE(look.dirty.contains(start + 63 * kPage, start + 64 * kPage));
  EXPECT_FALSE(look.dirty.contains(start + 6 * kPage, start + 7 * kPage));
  EXPECT_TRUE(tracker.take().dirty.contains(start + 5 * kPage, start + 6 * kPage));
  EXPECT_FALSE(tracker.take().dirty.contains(start + 5 * kPage, start + 6 * kPage));
}

// Only such pages may be taken from what was read before.
TEST(Tracker, WhatIsThereAsItWasIsClean) {
  enum : unsigned long { kMap, kWrite, kDrop, kDropAndRead, kMapAnew };
  char* memory = nullptr;
  TrackedProcess process([&](unsigned long what) -> unsigned long {
    char* const page = memory + what * kPage;
    switch (what) {
      case kMap:
        memory = map(8 * kPage);
        std::memset(memory, 1, 8 * kPage);
        break;
      case kWrite: ++*page; break;
      case kDrop: ::madvise(page, kPage, MADV_DONTNEED); break;
      case kDropAndRead: return ::madvise(page, kPage, MADV_DONTNEED) == 0 && *page == 0;
      default:
        ::mmap(page, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        *page = 1;
    }
    return number(memory);
  });
  NEED_TRACKING(process);
  const auto start = process.step(kMap);
  Tracker tracker(process.pid(), process.userfaultfd());
  EXPECT_FALSE(tracker.clean().contains(start, start + kPage)) << "it was not read yet";
  tracker.take();
  EXPECT_TRUE(tracker.clean().contains(start, start + 8 * kPage));
  for (const auto what : {kWrite, kDrop, kDropAndRead, kMapAnew}) process.step(what);
  const auto clean = tracker.clean();
  PageRanges mine;
  mine.add(start, start + 8 * kPage);
  PageRanges expected = mine;
  expected.remove(start + kWrite * kPage, start + (kMapAnew + 1) * kPage);
  EXPECT_EQ(clean.within(mine), expected);
}

TEST(Tracker, FindsLockedMemory) {
  TrackedProcess process([](unsigned long is_locked) -> unsigned long {
    char* const memory = map(4 * kPage);
    // The address sanitizer makes mlock() do nothing.
    if (is_locked != 0 && ::syscall(SYS_mlock, memory, 4 * kPage) != 0) return 0;
    return number(memory);
  });
  const auto free = process.step(0);
  EXPECT_TRUE(locked_memory(process.pid()).empty());
  const auto locked = process.step(1);
  if (process.userfaultfd() >= 0) ::close(process.userfaultfd());
  ASSERT_NE(locked, 0u);
  EXPECT_TRUE(locked_memory(process.pid()).contains(locked, locked + 4 * kPage));
  EXPECT_FALSE(locked_memory(process.pid()).contains(free, free + kPage));
}

TEST(Tracker, IsOfUseWhereTheKernelCanLookForWrittenPages) {
  std::array<std::uint64_t, 12> argument{96};
  const int pagemap = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  const bool can =
      ::ioctl(pagemap, _IOWR('f', 16, argument), argument.data()) == 0 || errno != ENOTTY;
  ::close(pagemap);
  EXPECT_EQ(can_track(), can);
}

TEST(Tracker, MemoryThatCanBeExecutedIsKnown) {
  char* const memory = map(4 * kPage);
  ASSERT_EQ(::mprotect(memory + kPage, kPage, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  const auto executable = executable_memory(::getpid());
  EXPECT_TRUE(executable.contains(number(memory) + kPage, number(memory) + 2 * kPage));
  EXPECT_EQ(executable.within(private_memory(::getpid())).bytes(), executable.bytes());
  EXPECT_FALSE(executable.contains(number(memory), number(memory) + kPage));
  EXPECT_FALSE(executable.contains(number(memory) + 2 * kPage, number(memory) + 3 * kPage));
  const auto code = number(reinterpret_cast<const void*>(&map)) / kPage * kPage;
  EXPECT_FALSE(executable.contains(code, code + kPage)) << "it is of a file";
  ::munmap(memory, 4 * kPage);
}

TEST(Tracker, WithoutAUserfaultfdEverythingIsDirty) {
  char* memory = nullptr;
  TrackedProcess process([&](unsigned long) -> unsigned long {
    memory = map(8 * kPage);
    std::memset(memory, 1, 8 * kPage);
    return number(memory);
  });
  const auto start = process.step(0);
  Tracker tracker(process.pid(), -1);
  if (process.userfaultfd() >= 0) ::close(process.userfaultfd());
  EXPECT_TRUE(tracker.take().dirty.contains(start, start + 8 * kPage));
  EXPECT_TRUE(tracker.look().dirty.contains(start, start + 8 * kPage));
}

// A page that has moved has not been sent from where it is now, and the kernel forgets that it was
// written to.
TEST(Tracker, WhatMremapMovesIsDirty) {
  char* memory = nullptr;
  TrackedProcess process([&](unsigned long what) -> unsigned long {
    if (what == 0) {
      memory = map(8 * kPage);
      std::memset(memory, 1, 8 * kPage);
    } else {
      char* target = map(8 * kPage);
      memory = static_cast<char*>(
          ::mremap(memory, 8 * kPage, 8 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, target));
    }
    return number(memory);
  });
  NEED_TRACKING(process);
  process.step(0);
  Tracker tracker(process.pid(), process.userfaultfd());
  tracker.take();
  const auto moved = process.step(1);
  EXPECT_TRUE(tracker.look().dirty.contains(moved, moved + 8 * kPage));
  EXPECT_TRUE(tracker.take().dirty.contains(moved, moved + 8 * kPage));
  EXPECT_FALSE(tracker.look().dirty.contains(moved, moved + kPage));
}

// Protecting it would make a page of it for CRIU.
TEST(Tracker, MemoryThatWasNeverTouchedIsNoPage) {
  TrackedProcess process(
      [&](unsigned long) -> unsigned long { return number(map(1ul << 30, MAP_NORESERVE)); });
  NEED_TRACKING(process);
  const auto start = process.step(0);
  Tracker tracker(process.pid(), process.userfaultfd());
  for (int i = 0; i < 2; ++i) {
    PageRanges area;
    area.add(start, start + (1ul << 30));
    EXPECT_TRUE(tracker.take().dirty.within(area).empty());
  }
  const int pagemap =
      ::open(("/proc/" + std::to_string(process.pid()) + "/pagemap").c_str(), O_RDONLY);
  std::uint64_t entry = 1;
  EXPECT_EQ(::pread(pagemap, &entry, sizeof entry, static_cast<off_t>(start / kPage * 8)), 8);
  EXPECT_EQ(entry >> 62, 0u);
  ::close(pagemap);
}

TEST(Tracker, AnotherProgramInTheProcessIsDirty) {
  TrackedProcess process([&](unsigned long exec) -> unsigned long {
    if (exec != 0) ::execl("/bin/sleep", "sleep", "100", nullptr);
    return 0;
  });
  NEED_TRACKING(process);
  process.step(0);
  Tracker tracker(process.pid(), process.userfaultfd());
  tracker.take();
  process.begin(1);
  // Until it sleeps, and writes nothing any more.
  const std::string folder = "/proc/" + std::to_string(process.pid());
  std::string name, call;
  while (name != "sleep" || call != std::to_string(SYS_clock_nanosleep)) {
    std::ifstream(folder + "/comm") >> name;
    std::ifstream(folder + "/syscall") >> call;
  }
  const auto look = tracker.take();
  EXPECT_GT(look.dirty.bytes(), 0u);
  EXPECT_EQ(tracker.take().dirty, look.dirty);
}

TEST(Tracker, DirectInputAndOutputIsNoticed) {
  TrackedProcess process([&](unsigned long what) -> unsigned long {
    static int file = -1;
    if (what == 1) file = ::open("/proc/self/exe", O_RDONLY | O_DIRECT);
    if (what == 2) ::close(file);
    return static_cast<unsigned long>(file);
  });
  EXPECT_FALSE(writes_unseen(process.pid()));
  if (static_cast<int>(process.step(1)) < 0) GTEST_SKIP() << "this file system has no O_DIRECT";
  EXPECT_TRUE(writes_unseen(process.pid()));
  process.step(2);
  EXPECT_FALSE(writes_unseen(process.pid()));
}

// Storms of whatever changes mappings, while rounds are read; then it stands still and every page
// is compared.
class Storm {
 public:
  void run(std::mt19937_64& random, int steps) {
    for (int i = 0; i < steps; ++i) step(random);
  }

 private:
  struct Area {
    char* start;
    std::size_t pages;
  };
  static constexpr std::size_t kMostAreas = 40, kMostPages = 600;

  void fill(const Area& area, std::mt19937_64& random) {
    const auto first = random() % area.pages, count = random() % (area.pages - first) + 1;
    for (std::size_t page = first; page < first + count; ++page) {
      auto* word = reinterpret_cast<std::uint64_t*>(area.start + page * kPage);
      word[random() % 512] = random();
    }
  }

  void step(std::mt19937_64& random) {
    if (areas_.empty() || (areas_.size() < kMostAreas && random() % 8 == 0)) {
      const std::size_t pages = random() % kMostPages + 1;
      areas_.push_back({map(pages * kPage), pages});
      if (random() % 4 == 0) ::madvise(areas_.back().start, pages * kPage, MADV_HUGEPAGE);
      fill(areas_.back(), random);
      return;
    }
    const std::size_t index = random() % areas_.size();
    Area& area = areas_[index];
    const std::size_t first = random() % area.pages, count = random() % (area.pages - first) + 1;
    char* part = area.start + first * kPage;
    switch (random() % 10) {
      case 0:
        ::munmap(area.start, area.pages * kPage);
        areas_.erase(areas_.begin() + static_cast<std::ptrdiff_t>(index));
        break;
      case 1: ::madvise(part, count * kPage, MADV_DONTNEED); break;
      case 2: ::madvise(part, count * kPage, MADV_FREE); break;
      case 3:
        ::mprotect(part, count * kPage, random() % 2 == 0 ? PROT_READ : PROT_NONE);
        ::usleep(random() % 100);
        ::mprotect(part, count * kPage, PROT_READ | PROT_WRITE);
        break;
      case 4: {  // to another place, grown or not
        const std::size_t pages = area.pages + random() % 20;
        void* moved = ::mremap(area.start, area.pages * kPage, pages * kPage, MREMAP_MAYMOVE);
        if (moved != MAP_FAILED) area = {static_cast<char*>(moved), pages};  // of one mapping only
        break;
      }
      case 5: {  // over another
        char* target = map(area.pages * kPage);
        void* moved = ::mremap(area.start, area.pages * kPage, area.pages * kPage,
                               MREMAP_MAYMOVE | MREMAP_FIXED, target);
        if (moved != MAP_FAILED) {
          area.start = target;
          break;
        }
        // Of several mappings some may have moved: Linux 6.17 and later stop at a registered one.
        ::munmap(target, area.pages * kPage);
        ::munmap(area.start, area.pages * kPage);
        areas_.erase(areas_.begin() + static_cast<std::ptrdiff_t>(index));
        break;
      }
      case 6:  // a new mapping in the same place
        ::mmap(part, count * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
               -1, 0);
        break;
      case 7: {  // by the kernel
        iovec from{&random, std::min(sizeof random, kPage)},
            to{part, std::min(sizeof random, kPage)};
        ::process_vm_writev(::getpid(), &from, 1, &to, 1, 0);
        break;
      }
      default: fill(area, random); break;
    }
  }

  std::vector<Area> areas_;
};

TEST(Tracker, NothingIsMissedInStorms) {
  const char* given = std::getenv("FERRY_SEED");
  const unsigned long first = given != nullptr ? std::strtoul(given, nullptr, 10) : 1;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
  const unsigned long seeds = 1;  // each round looks through the terabytes that the sanitizer maps
#else
  const unsigned long seeds = given != nullptr ? 1 : 6;
#endif
  for (unsigned long seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE("FERRY_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    Storm storm;
    TrackedProcess process([&](unsigned long steps) -> unsigned long {
      storm.run(random, static_cast<int>(steps));
      return 0;
    });
    NEED_TRACKING(process);
    Tracker tracker(process.pid(), process.userfaultfd());
    Copy copy(process.pid());
    process.step(100);
    process.begin(1ul << 30);  // goes on until it is halted
    for (int round = 0; round < 12; ++round) copy.round(tracker);
    process.halt();
    copy.last(tracker);
    EXPECT_EQ(copy.wrong(process.pid(), private_memory(process.pid())),
              std::vector<std::uint64_t>{});
  }
}

}  // namespace
}  // namespace ferry::precopy
