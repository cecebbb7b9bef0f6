#include "cli/text/table.h"

#include <gtest/gtest.h>

namespace ferry::cli {
namespace {

TEST(Table, ColumnsAreAsWideAsWhatStandsInThem) {
  Table table({"NAME", "PID", "ON"});
  table.add({"client", "7", "eth0"});
  table.add({"db", "1234", ""});
  EXPECT_EQ(table.text(),
            "NAME     PID  ON\n"
            "client     7  eth0\n"
            "db      1234  -\n");
}

TEST(Table, OfNothingIsItsHeader) {
  EXPECT_EQ(Table({"A", "B"}).text(), "A  B\n");
}

TEST(Table, WhatIsNotOnlyNumbersStandsOnTheLeft) {
  Table table({"X", "Y"});
  table.add({"12", "a"});
  table.add({"b", "c"});
  EXPECT_EQ(table.text(), "X   Y\n12  a\nb   c\n");
}

}  // namespace
}  // namespace ferry::cli
