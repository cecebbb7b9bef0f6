#include "wire/psn.h"

#include <gtest/gtest.h>

namespace ferry::wire {
namespace {

TEST(Psn, AddsAndSubtractsModulo24Bits) {
  EXPECT_EQ(psn_add(0xFFFFFF, 1), 0u);
  EXPECT_EQ(psn_add(0xFFFFF0, 0x20), 0x10u);
  EXPECT_EQ(psn_sub(0, 1), 0xFFFFFFu);
  EXPECT_EQ(psn_sub(0x10, 0x20), 0xFFFFF0u);
}

TEST(Psn, DifferenceCrossesTheWrap) {
  EXPECT_EQ(psn_diff(5, 5), 0);
  EXPECT_EQ(psn_diff(0, 0xFFFFFF), 1);
  EXPECT_EQ(psn_diff(0xFFFFFF, 0), -1);
  EXPECT_EQ(psn_diff(0x10, 0xFFFFF0), 0x20);
  EXPECT_EQ(psn_diff(0xFFFFF0, 0x10), -0x20);
}

TEST(Psn, HalfTheCircleAheadIsBehind) {
  EXPECT_EQ(psn_diff(0x7FFFFF, 0), 0x7FFFFF);
  EXPECT_EQ(psn_diff(0x800000, 0), -0x800000);
  EXPECT_TRUE(psn_before(0, 0x7FFFFF));
  EXPECT_FALSE(psn_before(0, 0x800001));
  EXPECT_TRUE(psn_before(0xFFFFFF, 0));
  EXPECT_FALSE(psn_before(0, 0xFFFFFF));
  EXPECT_FALSE(psn_before(7, 7));
}

TEST(Psn, DifferenceUndoesAddition) {
  for (std::uint32_t base : {0u, 1u, 0x7FFFFFu, 0x800000u, 0xFFFFFEu, 0xFFFFFFu}) {
    for (std::int32_t step : {0, 1, 127, 65536, 0x7FFFFF}) {
      EXPECT_EQ(psn_diff(psn_add(base, static_cast<std::uint32_t>(step)), base), step);
      EXPECT_EQ(psn_diff(psn_sub(base, static_cast<std::uint32_t>(step)), base), -step);
    }
  }
}

}  // namespace
}  // namespace ferry::wire
