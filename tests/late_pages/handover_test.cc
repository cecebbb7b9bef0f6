#include "late_pages/handover.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace ferry::late_pages {
namespace {

std::vector<Described> two_processes() {
  std::vector<Described> processes(2);
  processes[0].pid = 12;
  processes[0].pages.add(0x1000, 0x3000);
  processes[0].pages.add(0x7ffff0000000, 0x7ffff0001000);
  processes[1].pid = 13;
  return processes;
}

TEST(Handover, IsReadAsItWasWritten) {
  const auto processes = parse_description(describe(two_processes()));
  ASSERT_EQ(processes.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(processes[i].pid, two_processes()[i].pid);
    EXPECT_EQ(processes[i].pages, two_processes()[i].pages);
  }
  EXPECT_TRUE(parse_description(describe({})).empty());
}

TEST(Handover, WhatIsCutOffIsRefused) {
  const auto whole = describe(two_processes());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // Cut off between two processes it is a description of one.
    if (size == 8 || size == whole.size() - 16) continue;
    EXPECT_THROW(parse_description(std::span(whole).first(size)), std::runtime_error) << size;
  }
}

TEST(Handover, WhatIsNoPageIsRefused) {
  for (const auto& [start, end] : {std::pair{0x1000ull, 0x1000ull},
                                   {0x2000ull, 0x1000ull},
                                   {0x1001ull, 0x2000ull},
                                   {0x1000ull, 1ull << 48}}) {
    auto description = describe(two_processes());
    const std::uint64_t range[] = {start, end};
    std::copy_n(std::as_bytes(std::span(range)).begin(), sizeof range, description.begin() + 24);
    EXPECT_THROW(parse_description(description), std::runtime_error) << start;
  }
  auto other = describe(two_processes());
  other[4] = std::byte{2};  // another version
  EXPECT_THROW(parse_description(other), std::runtime_error);
}

}  // namespace
}  // namespace ferry::late_pages
