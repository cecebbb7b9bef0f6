#include "precopy/pages_index.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace ferry::precopy {
namespace {

constexpr std::uint64_t kIndexHere = 0x7f0000000000;

PageDigest digest(int i) {
  PageDigest digest{};
  std::memcpy(digest.data(), &i, sizeof i);
  return digest;
}

// Three pages of layer 0, one of layer 1 in the middle, and one of layer 2 elsewhere.
PagesIndex made() {
  PagesIndex index;
  index.add(kIndexHere, {0, digest(1)});
  index.add(kIndexHere + kPage, {1, digest(2)});
  index.add(kIndexHere + 2 * kPage, {0, digest(3)});
  index.add(kIndexHere + 3 * kPage, {0, digest(4)});
  index.add(kIndexHere + 9 * kPage, {2, digest(5)});
  return index;
}

void expect_made(const PagesIndex& index) {
  EXPECT_EQ(index.layers(), 3u);
  EXPECT_EQ(index.bytes(), 5 * kPage);
  PageRanges first, second;
  first.add(kIndexHere, kIndexHere + kPage);
  first.add(kIndexHere + 2 * kPage, kIndexHere + 4 * kPage);
  second.add(kIndexHere + kPage, kIndexHere + 2 * kPage);
  EXPECT_EQ(index.of_layer(0), first);
  EXPECT_EQ(index.of_layer(1), second);
  EXPECT_TRUE(index.of_layer(3).empty());
  for (const auto& [page, layer, number] :
       {std::tuple{0, 0u, 1}, {1, 1u, 2}, {3, 0u, 4}, {9, 2u, 5}}) {
    const auto found = index.find(kIndexHere + static_cast<unsigned>(page) * kPage);
    ASSERT_TRUE(found) << page;
    EXPECT_EQ(found->layer, layer) << page;
    EXPECT_EQ(found->digest, digest(number)) << page;
  }
  for (const std::uint64_t page : {4, 8, 10})
    EXPECT_FALSE(index.find(kIndexHere + page * kPage)) << page;
  EXPECT_FALSE(index.find(kIndexHere - kPage));
}

TEST(PagesIndex, KnowsItsPages) {
  expect_made(made());
  EXPECT_FALSE(PagesIndex().find(kIndexHere));
  EXPECT_EQ(PagesIndex().layers(), 0u);
}

TEST(PagesIndex, ComesBackFromItsFile) {
  expect_made(PagesIndex::parse(made().file(), "index"));
  EXPECT_EQ(PagesIndex::parse(PagesIndex().file(), "index").bytes(), 0u);
}

TEST(PagesIndex, AMalformedOneIsRefused) {
  const auto good = made().file();
  const auto refusal = [](const std::vector<std::byte>& file) -> std::string {
    try {
      PagesIndex::parse(file, "index");
      return {};
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal(good), "");
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(refusal({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}),
              "index is no index of pages")
        << size;
  }
  const auto with = [&](std::size_t offset, std::uint64_t value, std::size_t bytes) {
    auto bad = good;
    std::memcpy(bad.data() + offset, &value, bytes);
    return refusal(bad);
  };
  constexpr std::size_t kRanges = 24, kRange = 24;  // where they begin, and bytes of one
  EXPECT_NE(with(0, 1, 4), "") << "magic";
  EXPECT_NE(with(4, 2, 4), "") << "version";
  EXPECT_NE(with(8, 2, 4), "") << "fewer layers than there are";
  EXPECT_NE(with(16, 5, 8), "") << "ranges";
  EXPECT_NE(with(16, ~std::uint64_t{0}, 8), "") << "ranges";
  EXPECT_NE(with(kRanges, kIndexHere + 1, 8), "") << "no page";
  EXPECT_NE(with(kRanges + 8, kIndexHere, 8), "") << "empty";
  EXPECT_NE(with(kRanges + kRange, kIndexHere - kPage, 8), "") << "not sorted";
  EXPECT_NE(with(kRanges + 3 * kRange + 8, kAddressEnd + kPage, 8), "") << "no address";
  EXPECT_NE(with(kRanges + 3 * kRange + 8, kIndexHere + 11 * kPage, 8), "")
      << "more pages than digests";
}

TEST(PagesIndex, HasAProcessInItsName) {
  EXPECT_EQ(index_file(12), "ferry-index-12");
  EXPECT_EQ(process_of_index_file("ferry-index-12"), 12);
  for (const char* other : {"index-12", "ferry-index-", "ferry-index-0", "ferry-index--1",
                            "ferry-index-1x", "ferry-index-01", "ferry-index-99999999999"}) {
    EXPECT_EQ(process_of_index_file(other), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace ferry::precopy
