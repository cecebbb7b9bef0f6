#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "precopy/pagemap_scan.h"

namespace {

using ferry::precopy::kPagemapScan;
using ferry::precopy::PageRegion;
using ferry::precopy::ScanArgument;

constexpr std::uint64_t kPage = 4096, kPresent = 1 << 3, kPages = 16;

// ferry-criu-dump.so as CRIU has it, and pages of this process in place of a program's.
struct LeftOut : testing::Test {
  using Ioctl = int (*)(int, unsigned long, ...);

  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    ::setenv("FERRY_LEFT_OUT", folder.c_str(), 1);
    library = ::dlopen(DUMP_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    ioctl = reinterpret_cast<Ioctl>(::dlsym(library, "ioctl"));
    ASSERT_NE(ioctl, nullptr);
    memory = static_cast<char*>(::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::madvise(memory, kPages * kPage, MADV_NOHUGEPAGE);
    std::memset(memory, 1, kPages * kPage);
    pagemap = ::open(("/proc/" + std::to_string(::getpid()) + "/pagemap").c_str(), O_RDONLY);
  }
  void TearDown() override {
    ::close(pagemap);
    ::munmap(memory, kPages * kPage);
    ::dlclose(library);
    ::unsetenv("FERRY_LEFT_OUT");
    std::filesystem::remove_all(folder);
  }

  // Pages [first, last) of the memory are left out, and so on.
  void leave_out(std::initializer_list<std::pair<std::uint64_t, std::uint64_t>> ranges) {
    std::ofstream file(folder + "/" + std::to_string(::getpid()), std::ios::binary);
    for (const auto& [first, last] : ranges) {
      for (const auto page : {first, last}) {
        const std::uint64_t bound = start() + page * kPage;
        file.write(reinterpret_cast<const char*>(&bound), sizeof bound);
      }
    }
  }

  // The pages that CRIU finds, with room for so many regions at a time.
  std::vector<std::uint64_t> found(std::size_t room) {
    std::vector<PageRegion> regions(room);
    std::vector<std::uint64_t> pages;
    ScanArgument argument{};
    argument.size = sizeof argument;
    argument.start = start();
    argument.end = start() + kPages * kPage;
    argument.vec = reinterpret_cast<std::uint64_t>(regions.data());
    argument.vec_len = room;
    argument.category_mask = argument.return_mask = kPresent;
    while (argument.start < argument.end) {
      const int count = ioctl(pagemap, kPagemapScan, &argument);
      EXPECT_GE(count, 0) << std::strerror(errno);
      if (count < 0 || argument.walk_end <= argument.start) break;
      for (int i = 0; i < count; ++i) {
        for (auto page = regions[i].start; page < regions[i].end; page += kPage) {
          pages.push_back((page - start()) / kPage);
        }
      }
      argument.start = argument.walk_end;
    }
    return pages;
  }
  bool can_scan() {
    ScanArgument argument{};
    argument.size = sizeof argument;
    return ::ioctl(pagemap, kPagemapScan, &argument) == 0 || errno != ENOTTY;
  }
  std::uint64_t start() const { return reinterpret_cast<std::uint64_t>(memory); }

  std::string folder = "/tmp/ferry-left-out-XXXXXX";
  void* library = nullptr;
  Ioctl ioctl = nullptr;
  char* memory = nullptr;
  int pagemap = -1;
};

#define NEED_SCAN() \
  if (!can_scan()) GTEST_SKIP() << "this kernel has no PAGEMAP_SCAN (6.7)"

TEST_F(LeftOut, PagesAreNotThereForCriu) {
  NEED_SCAN();
  leave_out({{0, 3}, {5, 6}, {9, 16}});
  for (const std::size_t room : {1, 2, 32}) {
    EXPECT_EQ(found(room), (std::vector<std::uint64_t>{3, 4, 6, 7, 8})) << room;
  }
}

TEST_F(LeftOut, ThePagesOfAllOthersAreThere) {
  NEED_SCAN();
  EXPECT_EQ(found(32).size(), kPages) << "there is no file";
}

TEST_F(LeftOut, AFileThatIsCutOffLeavesOutNothing) {
  NEED_SCAN();
  leave_out({{0, 3}});
  std::filesystem::resize_file(folder + "/" + std::to_string(::getpid()), 15);
  EXPECT_EQ(found(32).size(), kPages);
}

TEST_F(LeftOut, OtherCallsAreTheKernels) {
  leave_out({{0, kPages}});
  int pipes[2], bytes = 0;
  ASSERT_EQ(::pipe(pipes), 0);
  ASSERT_EQ(::write(pipes[1], "abc", 3), 3);
  EXPECT_EQ(ioctl(pipes[0], FIONREAD, &bytes), 0);
  EXPECT_EQ(bytes, 3);
  ::close(pipes[0]);
  ::close(pipes[1]);
  EXPECT_EQ(ioctl(pipes[0], FIONREAD, &bytes), -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
