#include "base/failure.h"

#include <gtest/gtest.h>

#include <string>

namespace ferry {
namespace {

TEST(Printable, KeepsUtf8AndNothingElse) {
  EXPECT_EQ(printable("ib_send_bw"), "ib_send_bw");
  EXPECT_EQ(printable("Fähre ⛴ 🛳"), "Fähre ⛴ 🛳");
  EXPECT_EQ(printable("a\xff"
                      "b\x1b[31m\x7f\n"),
            "a?b?[31m??");
  EXPECT_EQ(printable("\xc3"), "?");                 // cut off
  EXPECT_EQ(printable("\xc0\xaf"), "??");            // overlong
  EXPECT_EQ(printable("\xc2\x9b"), "??");            // a control character
  EXPECT_EQ(printable("\xed\xa0\x80"), "???");       // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "????");  // behind the last character
  EXPECT_EQ(printable(""), "");
}

TEST(OneLine, IsTheFirstThatSaysSomething) {
  EXPECT_EQ(one_line("\n  \nfirst \t\r\nsecond"), "first");
  EXPECT_EQ(one_line("alone"), "alone");
  EXPECT_EQ(one_line(" \n"), "");
}

}  // namespace
}  // namespace ferry
