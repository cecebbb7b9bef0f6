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

// A memory window gets other variants of its key.
TEST(NumberTable, AllVariantsOfAKey) {
  NumberTable keys(8);
  keys.set_index(0x1205, 0xABCDFE);
  EXPECT_EQ(keys[0x1205], 0xABCDFEu);
  EXPECT_EQ(keys[0x1206], 0xABCDFFu);
  EXPECT_EQ(keys[0x1207], 0xABCD00u) << "variants begin anew behind the last one";
  EXPECT_EQ(keys[0x1204], 0xABCDFDu);
  EXPECT_EQ(keys[0x1305], 0x1305u);
  EXPECT_TRUE(keys.has_index_of(0x12FF));
  EXPECT_TRUE(keys.is_used());
  keys.set(0x1205, 7);
  EXPECT_EQ(keys[0x1205], 7u);
  EXPECT_EQ(keys[0x1206], 0x1206u);
  for (const std::uint32_t index : {0u, 0xFFFFFF00u}) {
    keys.set_index(index, 0);
    EXPECT_TRUE(keys.has_index_of(index));
    EXPECT_EQ(keys[index | 9], 9u);
    keys.erase(index);
    EXPECT_FALSE(keys.has_index_of(index));
    EXPECT_EQ(keys[index | 9], index | 9);
  }
}

TEST(NumberTable, KeysOfAllIndexes) {
  NumberTable keys(8);
  for (std::uint32_t key = 1; key < 0xFFFF0000; key += 0x00FEDCBB) keys.set(key, ~key);
  for (std::uint32_t key = 1; key < 0xFFFF0000; key += 0x00FEDCBB) EXPECT_EQ(keys[key], ~key);
}

}  // namespace
}  // namespace ferry::virt
