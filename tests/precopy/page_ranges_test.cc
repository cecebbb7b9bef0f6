#include "precopy/page_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ferry::precopy {
namespace {

using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

Ranges list(const PageRanges& ranges) {
  return {ranges.begin(), ranges.end()};
}

TEST(PageRanges, WhatTouchesIsOne) {
  PageRanges ranges;
  ranges.add(10, 20);
  ranges.add(30, 40);
  ranges.add(20, 30);
  EXPECT_EQ(list(ranges), (Ranges{{10, 40}}));
  EXPECT_EQ(ranges.bytes(), 30u);
}

TEST(PageRanges, RemovingCutsInTwo) {
  PageRanges ranges;
  ranges.add(10, 40);
  ranges.remove(20, 25);
  ranges.remove(0, 12);
  ranges.remove(39, 100);
  EXPECT_EQ(list(ranges), (Ranges{{12, 20}, {25, 39}}));
  EXPECT_EQ(ranges.bytes(), 22u);
}

TEST(PageRanges, WithinIsWhatBothHave) {
  PageRanges a, b;
  a.add(0, 10);
  a.add(20, 30);
  b.add(5, 25);
  b.add(28, 50);
  EXPECT_EQ(list(a.within(b)), (Ranges{{5, 10}, {20, 25}, {28, 30}}));
  EXPECT_TRUE(a.contains(20, 30));
  EXPECT_FALSE(a.contains(9, 21));
}

// Beside a set of single numbers.
TEST(PageRanges, RandomOperationsAreThoseOfASet) {
  std::mt19937 random(1);
  PageRanges ranges;
  std::vector<bool> model(300), other(300);
  for (int step = 0; step < 20000; ++step) {
    const auto start = random() % 300, end = std::min<unsigned long>(300, start + random() % 20);
    const bool adds = random() % 2 == 0;
    adds ? ranges.add(start, end) : ranges.remove(start, end);
    for (auto i = start; i < end; ++i) model[i] = adds;
    std::vector<bool> seen(300);
    std::uint64_t bytes = 0, last = 0;
    for (const auto& [first, behind] : ranges) {
      ASSERT_TRUE(first > last || last == 0) << "they touch or are out of order";
      for (auto i = first; i < behind; ++i) seen[i] = true;
      bytes += behind - first;
      last = behind;
    }
    ASSERT_EQ(seen, model);
    ASSERT_EQ(bytes, ranges.bytes());
  }
}

}  // namespace
}  // namespace ferry::precopy
