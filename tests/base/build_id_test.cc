#include "base/build_id.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(BuildId, OfTheFileIsThatOfTheProgramThatRuns) {
  EXPECT_EQ(build_id().size(), 40u);
  EXPECT_EQ(build_id_of("/proc/self/exe"), build_id());
}

TEST(BuildId, WhatIsNoElfFileHasNone) {
  for (const auto* path : {"/nonexistent", "/dev/null", "/proc/self/status", "/"}) {
    EXPECT_EQ(build_id_of(path), "") << path;
  }
}

}  // namespace
}  // namespace ferry
