// Checkpoints as each version of the format has them are read by all that come after it.

#include <gtest/gtest.h>

#include <filesystem>

#include "made.h"

namespace ferry::store {
namespace {

TEST(Golden, Format1IsRead) {
  const Checkpoint checkpoint = Store(std::string(FERRY_GOLDEN) + "/1").open("0123456789abcdef");
  checkpoint.verify();
  const Manifest& manifest = checkpoint.manifest();
  EXPECT_EQ(manifest.version, "1.2.3");
  ASSERT_EQ(manifest.programs.size(), 2u);
  EXPECT_EQ(manifest.programs[0].name, "p0");
  EXPECT_EQ(manifest.programs[1].host, "h1");
  EXPECT_EQ(manifest.programs[1].facts, (nlohmann::json{{"kind", "process"}}));
  EXPECT_EQ(manifest.programs[0].shards.size(), 2u);
  EXPECT_EQ(test::read(checkpoint, 0), (test::Files{{"core-1.img", "the core of the first"},
                                                    {"empty.img", ""},
                                                    {"pages-1.img", std::string(100, 'p')}}));
  EXPECT_EQ(test::read(checkpoint, 1), (test::Files{{"core-1.img", "the core of the second"}}));
}

}  // namespace
}  // namespace ferry::store
