#include "host/proc/silence.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "connected.h"

namespace ferry::host {
namespace {

TEST(SilenceTest, ThePeerOfAConnectionHearsNothingOfItsEnd) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  Connected silent, loud;
  silence(silent.pid);
  silent.end();
  loud.end();
  EXPECT_TRUE(loud.hears_of_the_end(10000));
  EXPECT_FALSE(silent.hears_of_the_end(0));
}

}  // namespace
}  // namespace ferry::host
