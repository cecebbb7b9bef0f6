#include "pipe/engine/guarded_copy.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "base/unique_fd.h"

namespace ferry::pipe {
namespace {

// A program can punch holes into its ring. Where the kernel has no page for one, the driver gets SIGBUS:
// here it is a file that has become shorter.
TEST(GuardedCopyTest, AMissingPageIsNoCrash) {
  guard_copies();
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const UniqueFd file(::memfd_create("short", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(2 * page)), 0);
  void* memory = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(page)), 0);
  std::vector<char> mine(2 * page, 'x');
  EXPECT_TRUE(guarded_copy(memory, mine.data(), page));
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_FALSE(guarded_copy(memory, mine.data(), 2 * page));
    EXPECT_FALSE(guarded_copy(mine.data(), memory, 2 * page));
  }
  EXPECT_TRUE(guarded_copy(mine.data(), memory, page));
  ::munmap(memory, 2 * page);
}

}  // namespace
}  // namespace ferry::pipe
