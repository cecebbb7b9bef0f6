#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "pipe/driver/receive_table.h"
#include "pipe/driver/send_table.h"
#include "pipe/memory/pool.h"
#include "pipe/protocol/queues.h"

namespace ferry::pipe {
namespace {

TEST(SendTableTest, GivesTheLowestGapThatIsLargeEnough) {
  SendTable table(1024);
  EXPECT_EQ(table.allocate(100), 0);  // 128 bytes
  EXPECT_EQ(table.allocate(64), 1);
  EXPECT_EQ(table.allocate(512), 2);
  EXPECT_EQ(table.block(2).offset, 192U);
  EXPECT_EQ(table.total(), 704U);
  EXPECT_TRUE(table.free(0));
  EXPECT_FALSE(table.free(0));
  EXPECT_EQ(table.block(static_cast<std::uint32_t>(table.allocate(300))).offset, 704U);
  EXPECT_EQ(table.block(static_cast<std::uint32_t>(table.allocate(65))).offset, 0U);
  EXPECT_EQ(table.allocate(1), -1);
  EXPECT_EQ(table.allocate(0), -1);
  EXPECT_EQ(table.allocate(~std::size_t{0}), -1);
}

TEST(SendTableTest, KeepsABlockThatIsBeingSent) {
  SendTable table(64);
  ASSERT_EQ(table.allocate(64), 0);
  EXPECT_TRUE(table.begin(0, 10, 54));
  EXPECT_FALSE(table.begin(0, 10, 55));
  EXPECT_FALSE(table.begin(0, ~std::uint64_t{0}, 2));
  EXPECT_FALSE(table.begin(1, 0, 1));
  EXPECT_TRUE(table.free(0));
  EXPECT_FALSE(table.begin(0, 0, 1)) << "it is no longer the program's";
  EXPECT_EQ(table.allocate(1), -1);
  table.end(0);
  EXPECT_EQ(table.allocate(1), 0);
}

TEST(ReceiveTableTest, CountsAWriteWhenAllBeforeItAreThere) {
  ReceiveTable table(100);
  EXPECT_EQ(table.room(1000), 100U);
  const auto first = table.reserve(30), second = table.reserve(30);
  EXPECT_EQ(table.room(1000), 40U);
  EXPECT_TRUE(table.written(second));
  EXPECT_FALSE(table.written(second));
  EXPECT_EQ(table.received(), 0U);
  EXPECT_FALSE(table.set_read(1));
  EXPECT_TRUE(table.written(first));
  EXPECT_EQ(table.received(), 60U);
  EXPECT_FALSE(table.written(7));
  EXPECT_FALSE(table.set_read(61));
  EXPECT_TRUE(table.set_read(50));
  EXPECT_TRUE(table.set_read(20)) << "what another queue has said before";
  EXPECT_EQ(table.read(), 50U);
  EXPECT_EQ(table.room(1000), 40U) << "up to the end of the ring";
  table.reserve(40);
  EXPECT_EQ(table.room(1000), 50U);
  EXPECT_EQ(table.position(table.reserved()), 0U);
}

TEST(QueueTest, TakesEntriesOfManyThreadsEachOnce) {
  constexpr unsigned kThreads = 4, kEach = 5'000;
  const auto queue = std::make_unique<Queue>();
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&queue, thread] {
      for (unsigned number = 1; number <= kEach; ++number) {
        Entry entry;
        entry.type = EntryType::kSend;
        entry.container = static_cast<std::uint16_t>(thread);
        entry.source = number;
        std::uint64_t position = 0;
        while (!submit(*queue, entry, &position)) std::this_thread::yield();
      }
    });
  }
  SubmissionReader reader;
  std::vector<std::uint64_t> last(kThreads);
  for (unsigned taken = 0; taken < kThreads * kEach;) {
    Entry entry;
    if (!reader.take(*queue, &entry)) {
      std::this_thread::yield();
      continue;
    }
    ++taken;
    ASSERT_EQ(entry.source, last[entry.container] + 1) << "first in, first out";
    last[entry.container] = entry.source;
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(reader.empty(*queue));
}

TEST(QueueTest, HoldsAsMuchAsItsDepth) {
  const auto queue = std::make_unique<Queue>();
  Entry entry;
  entry.type = EntryType::kCompleted;
  CompletionWriter writer;
  CompletionReader reader;
  for (unsigned number = 0; number < kQueueDepth; ++number)
    ASSERT_TRUE(writer.write(*queue, entry));
  EXPECT_FALSE(writer.write(*queue, entry));
  EXPECT_TRUE(reader.take(*queue, &entry));
  EXPECT_TRUE(writer.write(*queue, entry));
}

TEST(PoolTest, GivesRingsUpToALimit) {
  Pool::Settings settings;
  settings.limit = 8 << 20;
  Pool pool(settings);
  const auto container = std::make_shared<Account>(6 << 20),
             other = std::make_shared<Account>(6 << 20);
  int error = 0;
  auto first = pool.make(1, {container}, &error);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->size(), kHugePage);
  first->base()[first->size() - 1] = std::byte{1};
  const auto second = pool.make(4 << 20, {container}, &error);
  ASSERT_TRUE(second);
  EXPECT_FALSE(pool.make(1, {container}, &error));
  EXPECT_EQ(error, ENOBUFS);
  const auto third = pool.make(1, {other}, &error);
  EXPECT_TRUE(third);
  EXPECT_FALSE(pool.make(1, {other}, &error)) << "all of them have no more";
  first.reset();
  EXPECT_TRUE(pool.make(1, {container}, &error));
  EXPECT_FALSE(pool.make(~std::size_t{0}, {other}, &error));
  EXPECT_FALSE(pool.make(0, {other}, &error));
}

// A program's cgroup may allow none: the driver has touched them before.
TEST(PoolTest, HugePagesAreThereFromTheBeginning) {
  Pool pool({});
  int error = 0;
  const auto ring = pool.make(kHugePage, {}, &error);
  ASSERT_TRUE(ring);
  struct statfs file_system {};
  ASSERT_EQ(::fstatfs(ring->descriptor(), &file_system), 0);
  if (file_system.f_type != HUGETLBFS_MAGIC) GTEST_SKIP() << "the kernel has no huge pages";
  struct stat status {};
  ASSERT_EQ(::fstat(ring->descriptor(), &status), 0);
  EXPECT_EQ(static_cast<std::size_t>(status.st_blocks) * 512, kHugePage);
}

TEST(PoolTest, NobodyChangesTheSizeOfARing) {
  Pool pool({});
  int error = 0;
  const auto ring = pool.make(1, {std::make_shared<Account>(kHugePage)}, &error);
  EXPECT_NE(::ftruncate(ring->descriptor(), 0), 0);
  EXPECT_NE(::ftruncate(ring->descriptor(), 2 * kHugePage), 0);
}

}  // namespace
}  // namespace ferry::pipe
