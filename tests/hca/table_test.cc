#include "hca/table.h"

#include <gtest/gtest.h>

#include <set>

namespace ferry::hca {
namespace {

TEST(Table, FindsByNumberAndGivesFreedNumbersAgain) {
  Table<int> table;
  int objects[3000];
  std::set<std::uint32_t> numbers;
  for (int& object : objects) {
    const std::uint32_t number = table.reserve();
    EXPECT_EQ(table.find(number), nullptr);
    table.set(number, &object);
    EXPECT_TRUE(numbers.insert(number).second);
  }
  std::uint32_t i = 0;
  for (int& object : objects) EXPECT_EQ(table.find(i++), &object);
  table.release(17);
  EXPECT_EQ(table.find(17), nullptr);
  EXPECT_EQ(table.reserve(), 17u);
  EXPECT_EQ(table.find(3000), nullptr) << "reserved by nobody";
  EXPECT_EQ(table.find(0xffffffff), nullptr);
}

TEST(Table, EndsAfterAMillion) {
  Table<int> table;
  for (int i = 0; i < 1024 * 1024; ++i) table.reserve();
  EXPECT_THROW(table.reserve(), std::bad_alloc);
  table.release(5);
  EXPECT_EQ(table.reserve(), 5u);
}

}  // namespace
}  // namespace ferry::hca
