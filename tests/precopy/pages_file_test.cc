#include "precopy/pages_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "precopy/page_keeper.h"

namespace ferry::precopy {
namespace {

constexpr std::uint64_t kFileHere = 0x7f0000000000, kLimit = 64 << 20;

// Pages whose bytes tell their number.
void put(PageStore& store, std::int32_t process, std::uint64_t start, std::uint64_t pages) {
  for (std::uint64_t i = 0; i < pages; ++i) {
    const auto place = store.put(process, start + i * kPage, start + (i + 1) * kPage);
    std::memset(place.data(), static_cast<int>(i % 251 + 1), place.size());
  }
}

std::vector<std::byte> file_of(const PageStore& store, std::int32_t process) {
  std::vector<std::byte> file;
  write_pages(store, process, store.pages().at(process), [&](std::span<const std::byte> piece) {
    file.insert(file.end(), piece.begin(), piece.end());
  });
  return file;
}

// Reads pages of a file, which comes in pieces of this size, into the store.
void read(std::span<const std::byte> file, std::size_t piece, PageStore& store,
          const PageRanges& wanted) {
  PageKeeper keeper(store);
  PagesReader reader({7, 0}, wanted, keeper);
  for (; !file.empty(); file = file.subspan(std::min(piece, file.size()))) {
    reader.add(file.first(std::min(piece, file.size())));
  }
  reader.end();
}

struct Words {
  std::uint32_t magic = kPagesMagic, version = kPagesVersion;
  std::uint64_t ranges = 0;
  std::array<std::uint64_t, 4> bounds{};
};

void read(const Words& words, std::size_t pages) {
  std::vector<std::byte> file(sizeof words + pages * kPage);
  std::memcpy(file.data(), &words, sizeof words);
  PageStore store(kLimit);
  read(file, file.size(), store, {});
}

TEST(PagesFile, ComesBackInPiecesOfAnySize) {
  PageStore store(kLimit);
  put(store, 7, kFileHere, 3);
  put(store, 7, kFileHere + 100 * kPage, 700);  // more than go together
  put(store, 7, kFileHere + (256 << 20) - 2 * kPage, 4);
  put(store, 8, kFileHere, 1);
  const auto file = file_of(store, 7);
  for (const std::size_t piece :
       {std::size_t{5}, std::size_t{4096}, std::size_t{131072}, file.size()}) {
    PageStore there(kLimit);
    read(file, piece, there, store.pages().at(7));
    EXPECT_EQ(there.pages().at(7), store.pages().at(7)) << piece;
    EXPECT_EQ(file_of(there, 7), file) << piece;
    EXPECT_EQ(there.pages().size(), 1u);
  }
}

TEST(PagesFile, GivesThePagesThatAreWanted) {
  PageStore store(kLimit);
  put(store, 7, kFileHere, 700);  // more than go together
  put(store, 7, kFileHere + 1000 * kPage, 3);
  const auto file = file_of(store, 7);
  PageRanges wanted;
  wanted.add(kFileHere + 5 * kPage, kFileHere + 6 * kPage);
  wanted.add(kFileHere + 250 * kPage,
             kFileHere + 260 * kPage);  // of two that go one after the other
  wanted.add(kFileHere + 1002 * kPage, kFileHere + 1003 * kPage);
  PageStore there(kLimit);
  read(file, 10'000, there, wanted);
  ASSERT_EQ(there.pages().at(7), wanted);
  for (const auto& [start, end] : wanted) {
    for (std::uint64_t at = start; at < end; at += kPage) {
      const auto mine = store.get(7, at, at + kPage), theirs = there.get(7, at, at + kPage);
      EXPECT_TRUE(std::ranges::equal(mine, theirs)) << (at - kFileHere) / kPage;
    }
  }
  wanted.add(kFileHere + 800 * kPage, kFileHere + 801 * kPage);
  EXPECT_THROW(read(file, 10'000, there, wanted), std::runtime_error) << "which it has not";
}

TEST(PagesFile, HasAProcessAndALayerInItsName) {
  EXPECT_EQ(pages_file({12, 3}), "ferry-pages-12-3");
  EXPECT_EQ(layer_of_pages_file("ferry-pages-12-3"), (Layer{12, 3}));
  for (const char* other :
       {"pages-12.img", "ferry-pages-", "ferry-pages-0-1", "ferry-pages--1-1", "ferry-pages-1",
        "ferry-pages-1-", "ferry-pages-1-x", "ferry-pages-1-01", "ferry-pages-99999999999-1"}) {
    EXPECT_EQ(layer_of_pages_file(other), std::nullopt) << other;
  }
}

TEST(PagesFile, AMalformedOneIsRefused) {
  Words good;
  good.ranges = 2;
  good.bounds = {kFileHere, kFileHere + kPage, kFileHere + 2 * kPage, kFileHere + 3 * kPage};
  EXPECT_NO_THROW(read(good, 2));
  EXPECT_THROW(read(good, 1), std::runtime_error) << "too short";
  EXPECT_THROW(read(good, 3), std::runtime_error) << "too long";
  const auto refused = [&](auto change) {
    Words bad = good;
    change(bad);
    EXPECT_THROW(read(bad, 2), std::runtime_error);
  };
  refused([](Words& words) { words.magic = 1; });
  refused([](Words& words) { words.version = 2; });
  refused([](Words& words) { words.ranges = 3; });
  refused([](Words& words) { words.bounds[2] = kFileHere; });      // not sorted
  refused([](Words& words) { words.bounds[1] = kFileHere; });      // empty
  refused([](Words& words) { words.bounds[0] = kFileHere + 1; });  // no page
  refused([](Words& words) { words.bounds[3] = kAddressEnd + kPage; });
}

}  // namespace
}  // namespace ferry::precopy
