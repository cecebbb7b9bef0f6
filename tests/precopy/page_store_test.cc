#include "precopy/page_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <system_error>

namespace ferry::precopy {
namespace {

constexpr std::uint64_t kHere = 0x7f0000000000;

void put(PageStore& store, std::int32_t process, std::uint64_t start, std::uint64_t end, int byte) {
  while (start < end) {
    const auto place = store.put(process, start, end);
    std::memset(place.data(), byte, place.size());
    start += place.size();
  }
}

int byte_at(const PageStore& store, std::int32_t process, std::uint64_t page) {
  return static_cast<int>(store.get(process, page, page + kPage).front());
}

TEST(PageStore, KeepsTheLatestOfEachProcess) {
  PageStore store(1 << 20);
  put(store, 1, kHere, kHere + 4 * kPage, 1);
  put(store, 2, kHere, kHere + kPage, 2);
  put(store, 1, kHere + kPage, kHere + 2 * kPage, 3);
  EXPECT_EQ(byte_at(store, 1, kHere), 1);
  EXPECT_EQ(byte_at(store, 1, kHere + kPage), 3);
  EXPECT_EQ(byte_at(store, 2, kHere), 2);
  EXPECT_EQ(store.bytes(), 5 * kPage);
  EXPECT_TRUE(store.has(1, kHere, kHere + 4 * kPage));
  EXPECT_FALSE(store.has(2, kHere, kHere + 2 * kPage));
  EXPECT_FALSE(store.has(3, kHere, kHere + kPage));
}

TEST(PageStore, ForgetsWhatIsNotKept) {
  PageStore store(4 * kPage);
  put(store, 1, kHere, kHere + 4 * kPage, 1);
  PageRanges memory;
  memory.add(kHere + kPage, kHere + 2 * kPage);
  store.keep(1, memory);
  EXPECT_FALSE(store.has(1, kHere, kHere + kPage));
  EXPECT_TRUE(store.has(1, kHere + kPage, kHere + 2 * kPage));
  put(store, 1, kHere + (1 << 20), kHere + (1 << 20) + 3 * kPage, 2);  // there is room again
  EXPECT_EQ(byte_at(store, 1, kHere + kPage), 1);
}

TEST(PageStore, RefusesMoreThanTheLimitAndWhatIsNoPage) {
  PageStore store(2 * kPage);
  EXPECT_THROW(store.put(1, kHere, kHere + 3 * kPage), std::system_error);
  EXPECT_THROW(store.put(1, kHere + 1, kHere + kPage), std::system_error);
  EXPECT_THROW(store.put(1, kAddressEnd - kPage, kAddressEnd + kPage), std::system_error);
  EXPECT_THROW(store.put(1, kHere, kHere), std::system_error);
}

TEST(PageStore, ARangeMayLieAnywhere) {
  PageStore store(1ull << 30);
  const std::uint64_t start = (256ull << 20) - kPage;  // where a window ends
  put(store, 1, start, start + 2 * kPage, 5);
  put(store, 1, kAddressEnd - kPage, kAddressEnd, 6);
  EXPECT_EQ(byte_at(store, 1, start), 5);
  EXPECT_EQ(byte_at(store, 1, start + kPage), 5);
  EXPECT_EQ(byte_at(store, 1, kAddressEnd - kPage), 6);
}

}  // namespace
}  // namespace ferry::precopy
