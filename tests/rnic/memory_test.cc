#include "rnic/memory/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "transport/types.h"

namespace ferry::rnic {
namespace {

using transport::kLocalWrite;
using transport::kRemoteRead;
using transport::kRemoteWrite;

struct Table : ::testing::Test {
  MemoryTable table;
  ProtectionDomain pd{1}, other{2};
  std::byte memory[64];
  MemoryRegion region;

  void SetUp() override {
    region.pd = &pd;
    region.address = memory;
    region.length = sizeof memory;
    region.iova = 0x1000;
    region.access = kLocalWrite | kRemoteWrite;
    ASSERT_TRUE(table.insert(&region, 0x123456789ABCDEF));
  }
  bool allows(std::uint64_t address, std::uint64_t length, std::uint32_t access = 0) {
    const std::byte* local = table.resolve_local(region.key, &pd, address, length, access);
    EXPECT_EQ(table.resolve_remote(region.key, &pd, nullptr, address, length, access), local);
    if (local != nullptr) {
      EXPECT_EQ(local, memory + (address - region.iova));
    }
    return local != nullptr;
  }
};

TEST_F(Table, Bounds) {
  EXPECT_TRUE(allows(0x1000, 64));
  EXPECT_TRUE(allows(0x1000, 0));
  EXPECT_TRUE(allows(0x1040, 0));
  EXPECT_TRUE(allows(0x103F, 1));
  EXPECT_FALSE(allows(0x1000, 65));
  EXPECT_FALSE(allows(0x1040, 1));
  EXPECT_FALSE(allows(0x1041, 0));
  EXPECT_FALSE(allows(0x0FFF, 1));
  EXPECT_FALSE(allows(0, 0x1001));
  // Sums that wrap.
  EXPECT_FALSE(allows(0x1001, ~0ull));
  EXPECT_FALSE(allows(~0ull, 2));
  EXPECT_FALSE(allows(0x1000, ~0ull - 0xFFF));
}

TEST_F(Table, Rights) {
  EXPECT_TRUE(allows(0x1000, 1, kLocalWrite));
  EXPECT_TRUE(allows(0x1000, 1, kRemoteWrite));
  EXPECT_FALSE(allows(0x1000, 1, kRemoteRead));
  EXPECT_FALSE(allows(0x1000, 1, kRemoteRead | kRemoteWrite));
}

TEST_F(Table, ProtectionDomainAndKeyMustMatch) {
  EXPECT_NE(table.resolve_local(region.key, &pd, 0x1000, 1, 0), nullptr);
  EXPECT_EQ(table.resolve_local(region.key, &other, 0x1000, 1, 0), nullptr);
  for (int bit = 0; bit < 32; ++bit) {
    EXPECT_EQ(table.resolve_local(region.key ^ 1u << bit, &pd, 0x1000, 1, 0), nullptr) << bit;
  }
}

TEST_F(Table, RemovedRegionIsGone) {
  table.remove(&region);
  EXPECT_FALSE(allows(0x1000, 1));
}

TEST_F(Table, KeysOfTheImage) {
  MemoryRegion copy = region;
  EXPECT_FALSE(table.insert_with_key(&copy, region.key));
  table.remove(&region);
  EXPECT_TRUE(table.insert_with_key(&copy, 0xCAFE0102));
  EXPECT_EQ(copy.lkey(), 0xCAFE0102u);
}

TEST(MemoryTable, FillsUpAndKeysAreDistinct) {
  MemoryTable table;
  ProtectionDomain pd{1};
  std::mt19937_64 random(1);
  std::vector<std::unique_ptr<MemoryRegion>> regions;
  std::set<std::uint32_t> indices;
  for (std::uint32_t i = 0; i < MemoryTable::kMaxRegions; ++i) {
    regions.push_back(std::make_unique<MemoryRegion>());
    ASSERT_TRUE(table.insert(regions.back().get(), random()));
    indices.insert(regions.back()->key >> 16);
  }
  EXPECT_EQ(indices.size(), regions.size());
  MemoryRegion more;
  EXPECT_FALSE(table.insert(&more, random()));
  MemoryWindow window(1, IBV_MW_TYPE_1);
  EXPECT_TRUE(table.insert(&window, random())) << "windows have places of their own";
  table.remove(regions.front().get());
  EXPECT_TRUE(table.insert(&more, random()));
}

// Keys that somebody saw must not tell the next one.
TEST(MemoryTable, KeysFollowNoSequence) {
  MemoryTable table;
  std::mt19937_64 random(2);
  MemoryRegion a, b, c;
  table.insert(&a, random());
  table.insert(&b, random());
  table.insert(&c, random());
  EXPECT_NE(b.key - a.key, c.key - b.key);
  EXPECT_NE((b.key >> 16) - (a.key >> 16), 1u);
}

struct Registration : ::testing::Test {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  char* memory = static_cast<char*>(
      mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ~Registration() override { munmap(memory, 4 * page); }

  std::uint64_t iova = 0;
  int check(void* address, std::size_t length, unsigned access, std::uint32_t* granted = nullptr) {
    device::MrInit init;
    init.address = address;
    init.length = length;
    init.iova = reinterpret_cast<std::uintptr_t>(address);
    init.access = access;
    std::uint32_t flags = 0;
    return check_registration(init, granted != nullptr ? granted : &flags, &iova);
  }
};

TEST_F(Registration, AccessFlags) {
  EXPECT_EQ(check(memory, page, 0), 0);
  EXPECT_EQ(check(memory, page, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(check(memory, page, IBV_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(check(memory, page, IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(check(memory, page, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
  EXPECT_EQ(check(memory, page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE), 0);
  EXPECT_EQ(check(memory, page, IBV_ACCESS_ON_DEMAND), 0);
  EXPECT_EQ(check(memory, page, IBV_ACCESS_MW_BIND), 0);
  EXPECT_EQ(check(memory, page, IBV_ACCESS_HUGETLB), 0);
  EXPECT_EQ(check(memory, page, kFlushGlobal), 0);
  EXPECT_EQ(check(memory, page, kFlushPersistent), EOPNOTSUPP);
  EXPECT_EQ(check(memory, page, 1u << 15), EINVAL);
  std::uint32_t granted = 0;
  EXPECT_EQ(check(memory, page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING, &granted), 0);
  EXPECT_EQ(granted, static_cast<std::uint32_t>(IBV_ACCESS_LOCAL_WRITE));
}

TEST_F(Registration, RangeMustBeMapped) {
  EXPECT_EQ(check(memory, 4 * page, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(check(memory + 1, 4 * page - 1, IBV_ACCESS_LOCAL_WRITE), 0);
  ASSERT_EQ(munmap(memory + page, page), 0);
  EXPECT_EQ(check(memory, page, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(check(memory, page + 1, IBV_ACCESS_LOCAL_WRITE), EFAULT);
  EXPECT_EQ(check(memory, 4 * page, IBV_ACCESS_LOCAL_WRITE), EFAULT);  // a hole in the middle
  EXPECT_EQ(check(nullptr, 1, IBV_ACCESS_LOCAL_WRITE), EFAULT);
  EXPECT_EQ(check(nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
}

TEST_F(Registration, ZeroBasedRegionsCountFromZero) {
  EXPECT_EQ(check(memory, page, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(iova, reinterpret_cast<std::uintptr_t>(memory));
  EXPECT_EQ(check(memory, page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED), 0);
  EXPECT_EQ(iova, 0u);
}

TEST_F(Registration, OnDemandMemoryMayComeLater) {
  ASSERT_EQ(munmap(memory + page, page), 0);
  EXPECT_EQ(check(memory, 4 * page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND), 0);
  // Implicit: all there is.
  EXPECT_EQ(check(nullptr, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND), 0);
  EXPECT_EQ(check(nullptr, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE), EINVAL);
  EXPECT_EQ(check(memory, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND), EINVAL);
}

TEST_F(Registration, MemoryWithoutAccessIsRefused) {
  ASSERT_EQ(mprotect(memory, page, PROT_NONE), 0);
  EXPECT_EQ(check(memory, page, IBV_ACCESS_LOCAL_WRITE), EFAULT);
}

TEST_F(Registration, RangesThatWrap) {
  EXPECT_EQ(check(reinterpret_cast<void*>(~std::uintptr_t{0} - 10), 100, 0), EINVAL);
  EXPECT_EQ(check(memory, ~std::size_t{0}, 0), EINVAL);
  device::MrInit init;
  init.address = memory;
  init.length = page;
  init.iova = ~0ull - 10;
  std::uint32_t access;
  EXPECT_EQ(check_registration(init, &access, &iova), EINVAL);
}

TEST_F(Registration, TouchesNoPageButTheEnds) {
  unsigned char residency[4];
  EXPECT_EQ(check(memory, 4 * page, IBV_ACCESS_LOCAL_WRITE), 0);
  ASSERT_EQ(mincore(memory, 4 * page, residency), 0);
  EXPECT_EQ(residency[1] & 1, 0);
  EXPECT_EQ(residency[2] & 1, 0);
}

}  // namespace
}  // namespace ferry::rnic
