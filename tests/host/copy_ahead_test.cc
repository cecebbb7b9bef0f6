#include "host/image/copy_ahead.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <fstream>
#include <span>
#include <utility>
#include <vector>

#include "host/control/control_server.h"
#include "precopy/page_keeper.h"
#include "precopy/page_store.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using precopy::kPage;
using precopy::PageRanges;
using test::Folder;

constexpr std::size_t kPages = 16;
constexpr std::uint64_t kSize = kPages * kPage;

std::byte* private_pages(int flags = 0) {
  void* map =
      ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return map == MAP_FAILED ? nullptr : static_cast<std::byte*>(map);
}

// A process without the library, which stands still. It is made before anything has threads.
struct CopyAheadTest : testing::Test {
  std::byte* written = private_pages();
  std::byte* untouched = private_pages();
  std::byte* code = private_pages();  // can be executed
  std::byte* locked = nullptr;        // in the process only
  pid_t pid = 0;
  Folder folder;
  precopy::PageStore store{1 << 30};

  void SetUp() override {
    ASSERT_TRUE(written != nullptr && untouched != nullptr && code != nullptr);
    for (std::size_t i = 0; i < kPages; ++i) written[i * kPage] = std::byte(i + 1);
    std::memset(code, 9, kSize);
    ASSERT_EQ(::mprotect(code, kSize, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::byte* mine = private_pages(MAP_LOCKED);
      if (mine != nullptr) std::memset(mine, 7, kSize);
      [[maybe_unused]] const ssize_t size = ::write(ready[1], &mine, sizeof mine);
      for (;;) ::pause();
    }
    ASSERT_EQ(::read(ready[0], &locked, sizeof locked), ssize_t{sizeof locked});
    for (const int end : ready) ::close(end);
    ASSERT_NE(locked, nullptr);
  }
  void TearDown() override {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    for (std::byte* pages : {written, untouched, code}) ::munmap(pages, kSize);
  }

  static std::uint64_t address(const std::byte* page) {
    return reinterpret_cast<std::uint64_t>(page);
  }
};

TEST_F(CopyAheadTest, AllThatCriuLeavesOutIsThere) {
  ControlServer control(folder.path("ferryd.sock"));
  CopyAhead ahead(control, pid, {});
  precopy::PageKeeper keeper(store);
  const auto all = ahead.leave_out(keeper, folder.path("left-out"));
  // While CRIU dumps, what can be executed may change, and so is there before.
  EXPECT_TRUE(store.has(pid, address(code), address(code) + kSize));
  EXPECT_FALSE(store.has(pid, address(written), address(written) + kPage));
  ahead.send_last(keeper);
  ASSERT_EQ(all.size(), 1u);
  ASSERT_TRUE(all.contains(pid));
  const PageRanges& pages = all.at(pid);
  EXPECT_EQ(store.pages(), all);
  EXPECT_EQ(ahead.sent_last(), pages.bytes());
  EXPECT_TRUE(pages.contains(address(written), address(written) + kSize));
  for (std::size_t i = 0; i < kPages; ++i) {
    const std::uint64_t page = address(written) + i * kPage;
    EXPECT_EQ(store.get(pid, page, page + kPage)[0], std::byte(i + 1));
    EXPECT_FALSE(
        pages.contains(address(untouched) + i * kPage, address(untouched) + (i + 1) * kPage));
    EXPECT_FALSE(pages.contains(address(locked) + i * kPage, address(locked) + (i + 1) * kPage))
        << "a restore could not fill it in";
  }
  // CRIU is told the same.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> told(pages.count());
  std::ifstream file(folder.path("left-out/" + std::to_string(pid)), std::ios::binary);
  const auto bytes = std::as_writable_bytes(std::span(told));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file);
  EXPECT_EQ(file.peek(), std::ifstream::traits_type::eof());
  PageRanges these;
  for (const auto& [start, end] : told) these.add(start, end);
  EXPECT_EQ(these, pages);
}

// Then the program goes on where it is.
TEST_F(CopyAheadTest, MemoryThatNobodyCanTakeEndsIt) {
  ControlServer control(folder.path("ferryd.sock"));
  CopyAhead ahead(control, pid, {});
  precopy::PageStore small(kSize);
  precopy::PageKeeper keeper(small);
  ahead.leave_out(keeper, folder.path("left-out"));
  EXPECT_THROW(ahead.send_last(keeper), std::exception);
}

}  // namespace
}  // namespace ferry::host
