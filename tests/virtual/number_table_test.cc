#include "virtual/shadows/number_table.h"

#include <gtest/gtest.h>

namespace ferry::virt {
namespace {

TEST(NumberTable, ANumberThatIsNotInTheTableIsItself) {
  NumberTable keys(8);
  EXPECT_EQ(keys[0], 0u);
  EXPECT_EQ(keys[0xFFFFFFFF], 0xFFFFFFFFu);
  keys.set(0x1201, 0xABCD00);
  EXPECT_EQ(keys[0x1201], 0xABCD00u);
  EXPECT_EQ(keys[0x1202], 0x1202u) << "another variant of the key";
  EXPECT_EQ(keys[0x1301], 0x1301u);
  EXPECT_EQ(keys[0], 0u);
  EXPECT_TRUE(keys.has_index_of(0x1202));
  EXPECT_FALSE(keys.has_index_of(0x1301));
}

TEST(NumberTable, EntriesEnd) {
  NumberTable qpns(0);
  qpns.set(0xFFFFFF, 1);
  qpns.set(2, 3);
  EXPECT_EQ(qpns[0xFFFFFF], 1u);
  qpns.set(2, 4);
  EXPECT_EQ(qpns[2], 4u);
  qpns.erase(2);
  qpns.erase(9);
  EXPECT_EQ(qpns[2], 2u);
  EXPECT_FALSE(qpns.has_index_of(2));
  qpns.clear();
  EXPECT_EQ(qpns[0xFFFFFF], 0xFFFFFFu);
}

TEST(NumberTable, KeysOfAllIndexes) {
  NumberTable keys(8);
  for (std::uint32_t key = 1; key < 0xFFFF0000; key += 0x00FEDCBB) keys.set(key, ~key);
  for (std::uint32_t key = 1; key < 0xFFFF0000; key += 0x00FEDCBB) EXPECT_EQ(keys[key], ~key);
}

}  // namespace
}  // namespace ferry::virt
