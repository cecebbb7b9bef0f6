#include "late_pages/filler.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "played_memory.h"

namespace ferry::late_pages {
namespace {

using precopy::kPage;

struct FillerTest : testing::Test {
  void SetUp() override {
    if (!make_userfaultfd()) GTEST_SKIP() << "no userfaultfd with events here";
  }

  // Fills in meanwhile.
  struct Filling {
    explicit Filling(PlayedMemory& memory) : Filling(memory, [](int) {}) {}
    Filling(PlayedMemory& memory, std::function<void(int)> forked) {
      processes.push_back(memory.process());
      thread = std::thread([this, forked] {
        try {
          Filler(std::move(processes), forked).run();
        } catch (const std::exception& failure) {
          error = failure.what();
        }
      });
    }
    ~Filling() { end(); }
    void end() {
      if (thread.joinable()) thread.join();
      EXPECT_EQ(error, "");
    }
    std::list<Process> processes;
    std::string error;
    std::thread thread;
  };
};

// fork() would hold the locks of malloc() until the event is read, by a thread that allocates.
pid_t fork_only() {
  return ::_Fork();
}

// TSan's _exit() would call the thread that fills in a leak of the child's.
[[noreturn]] void exit_only(int status) {
  for (;;) ::syscall(SYS_exit_group, status);
}

TEST_F(FillerTest, AllPagesComeAlthoughNobodyTouchesThem) {
  PlayedMemory memory(3000);
  Filling(memory).end();
  for (std::uint64_t page = 0; page < memory.pages; ++page) {
    for (const std::uint64_t at : {0ul, kPage - 1}) {
      ASSERT_EQ(memory.memory[page * kPage + at], memory.byte_of(page)) << page;
    }
  }
}

TEST_F(FillerTest, PagesThatAreTouchedComeFirst) {
  PlayedMemory memory(20000);
  Filling filling(memory);
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t page = random() % memory.pages;
    unsigned char& byte = memory.memory[page * kPage + 5];
    ASSERT_EQ(byte, memory.byte_of(page));
    byte = memory.byte_of(page);
  }
}

TEST_F(FillerTest, WhatIsThereAlreadyIsNotOverwritten) {
  PlayedMemory memory(100);
  std::vector<unsigned char> other(kPage, 252);
  uffdio_copy copy{memory.start() + 50 * kPage, reinterpret_cast<std::uint64_t>(other.data()),
                   kPage, 0, 0};
  ASSERT_EQ(::ioctl(memory.userfaultfd.get(), UFFDIO_COPY, &copy), 0);
  Filling(memory).end();
  EXPECT_EQ(memory.memory[49 * kPage], memory.byte_of(49));
  EXPECT_EQ(memory.memory[50 * kPage], 252);
  EXPECT_EQ(memory.memory[51 * kPage], memory.byte_of(51));
}

TEST_F(FillerTest, MappingsOfOneRangeAreFilledOneByOne) {
  PlayedMemory memory(64);
  // Several mappings: the kernel copies into one at a time.
  for (std::uint64_t page = 3; page < 60; page += 7) {
    ASSERT_EQ(::mprotect(memory.memory + page * kPage, 2 * kPage, PROT_READ), 0);
  }
  Filling(memory).end();
  for (std::uint64_t page = 0; page < memory.pages; ++page) {
    ASSERT_EQ(memory.memory[page * kPage], memory.byte_of(page)) << page;
  }
}

TEST_F(FillerTest, AChildHasThePagesThatItsParentHasNotGotYet) {
  PlayedMemory memory(20000);
  std::atomic<int> forks{0};
  Filling filling(memory, [&](int userfaultfd) {
    EXPECT_GE(userfaultfd, 0);
    ++forks;
  });
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork_only();
    if (child == 0) {
      for (std::uint64_t page = 0; page < memory.pages; ++page) {
        if (memory.memory[page * kPage] != memory.byte_of(page)) exit_only(1);
      }
      exit_only(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  filling.end();
  for (std::uint64_t page = 0; page < memory.pages; ++page) {
    ASSERT_EQ(memory.memory[page * kPage], memory.byte_of(page)) << page;
  }
}

// Each child takes a descriptor.
TEST_F(FillerTest, ChildrenThatHaveEndedMakeRoomForOthers) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan takes descriptors to check a pointer, and there are none";
#endif
  PlayedMemory memory(20000);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  Filling filling(memory);
  const UniqueFd next(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
  const rlimit few{static_cast<rlim_t>(next.get()) + 3, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork_only();
    if (child == 0) exit_only(0);
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  filling.end();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  for (std::uint64_t page = 0; page < memory.pages; ++page) {
    ASSERT_EQ(memory.memory[page * kPage], memory.byte_of(page)) << page;
  }
}

// A process that ends needs nothing.
TEST_F(FillerTest, AProcessThatEndsIsNoFailure) {
  PlayedMemory memory(20000);
  Filling filling(memory);
  const pid_t child = fork_only();
  if (child == 0) exit_only(memory.memory[0] == memory.byte_of(0) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A program that maps, unmaps, drops, moves, protects and reads its memory in any order while it is filled in, against
// a model of what each page has.
TEST_F(FillerTest, MemoryIsWhatTheProgramHasMadeOfIt) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    const auto any = [&](std::uint64_t below) { return random() % below; };
    constexpr std::uint64_t kPages = 4000;
    PlayedMemory memory(kPages);
    // What a page has; nothing: it is not mapped.
    std::vector<std::optional<unsigned char>> model(kPages);
    for (std::uint64_t page = 0; page < kPages; ++page) model[page] = memory.byte_of(page);
    const auto at = [&](std::uint64_t page) { return memory.memory + page * kPage; };
    Filling filling(memory);
    for (int step = 0; step < 40; ++step) {
      const std::uint64_t length = 1 + any(60), from = any(kPages - length);
      const bool is_mapped = std::all_of(model.begin() + from, model.begin() + from + length,
                                         [](const auto& page) { return page.has_value(); });
      switch (any(5)) {
        case 0:
          ASSERT_EQ(::munmap(at(from), length * kPage), 0);
          std::fill_n(model.begin() + from, length, std::nullopt);
          break;
        case 1:
          ASSERT_EQ(::mmap(at(from), length * kPage, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                    at(from));
          std::fill_n(model.begin() + from, length, 0);
          break;
        case 2:
          if (!is_mapped) break;
          ASSERT_EQ(::madvise(at(from), length * kPage, MADV_DONTNEED), 0);
          std::fill_n(model.begin() + from, length, 0);
          break;
        case 3: {
          const std::uint64_t to = any(kPages - length);
          if (!is_mapped || (to < from + length && from < to + length)) break;
          // Of several mappings it moves the first ones, or none.
          if (::mremap(at(from), length * kPage, length * kPage, MREMAP_MAYMOVE | MREMAP_FIXED,
                       at(to)) != at(to)) {
            for (const std::uint64_t page : {from, to}) {
              std::fill_n(model.begin() + page, length, std::nullopt);
              ASSERT_EQ(::munmap(at(page), length * kPage), 0);
            }
            break;
          }
          std::copy_n(model.begin() + from, length, model.begin() + to);
          std::fill_n(model.begin() + from, length, std::nullopt);
          break;
        }
        default:
          if (!is_mapped) break;
          ASSERT_EQ(*at(from), *model[from])
              << "seed " << seed << ", step " << step << ", page " << from;
          *at(from) = 255;
          model[from] = 255;
      }
    }
    filling.end();
    for (std::uint64_t page = 0; page < kPages; ++page) {
      if (!model[page]) continue;
      ASSERT_EQ(*at(page), *model[page]) << "seed " << seed << ", page " << page;
      if (*model[page] == 255) continue;  // written to: the rest is what it was
      ASSERT_EQ(at(page)[kPage - 1], *model[page]) << "seed " << seed << ", page " << page;
    }
  }
}

}  // namespace
}  // namespace ferry::late_pages
