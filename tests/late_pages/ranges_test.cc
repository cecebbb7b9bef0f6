#include "late_pages/ranges.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace ferry::late_pages {
namespace {

TEST(Ranges, FindWhatFollows) {
  Ranges ranges;
  ranges.put({2, 5, 12});
  ranges.put({8, 9, 18});
  EXPECT_FALSE(ranges.find(1));
  EXPECT_EQ(ranges.find(3), (Range{3, 5, 13}));
  EXPECT_FALSE(ranges.find(5));
  EXPECT_EQ(ranges.behind(4), (Range{4, 5, 14}));
  EXPECT_EQ(ranges.behind(5), (Range{8, 9, 18}));
  EXPECT_FALSE(ranges.behind(9));
  EXPECT_EQ(ranges.within(3, 9), (std::vector<Range>{{3, 5, 13}, {8, 9, 18}}));
}

// Against a map of single pages.
TEST(Ranges, AreAMapOfPages) {
  constexpr std::uint64_t kPages = 40;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    Ranges ranges;
    std::map<std::uint64_t, std::uint64_t> model;
    for (int step = 0; step < 40; ++step) {
      const std::uint64_t start = random() % kPages, end = start + 1 + random() % 8;
      const Range range{start, end, 1000 * (1 + random() % 9)};
      switch (random() % 3) {
        case 0:
          ranges.put(range);
          for (auto page = start; page < end; ++page) model[page] = range.content + page - start;
          break;
        case 1:
          ranges.add(range);
          for (auto page = start; page < end; ++page)
            model.emplace(page, range.content + page - start);
          break;
        default: {
          std::map<std::uint64_t, std::uint64_t> cut, expected;
          for (const auto& part : ranges.cut(start, end)) {
            for (auto page = part.start; page < part.end; ++page)
              cut[page] = part.content + page - part.start;
          }
          for (auto page = start; page < end; ++page) {
            if (const auto node = model.extract(page)) expected[page] = node.mapped();
          }
          ASSERT_EQ(cut, expected) << "seed " << seed << ", step " << step;
        }
      }
      for (std::uint64_t page = 0; page < kPages + 10; ++page) {
        const auto found = ranges.find(page);
        ASSERT_EQ(found.has_value(), model.contains(page)) << "seed " << seed << ", step " << step;
        if (!found) continue;
        ASSERT_EQ(found->content, model.at(page)) << "seed " << seed << ", step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace ferry::late_pages
