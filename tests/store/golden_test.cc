// Checkpoints as each version of the format has them are read by all that come after it.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

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

// An encrypted one, with a shard that another one has written.
TEST(Golden, Format2IsRead) {
  const std::string directory = std::string(FERRY_GOLDEN) + "/2";
  std::stringstream key;
  key << std::ifstream(directory + "/key.pem").rdbuf();
  Checkpoint checkpoint = Store(directory).open("0123456789abcdef");
  checkpoint.verify();
  checkpoint.unlock(checkpoint.content_key(PrivateKey(key.str(), "key.pem")));
  checkpoint.verify();
  EXPECT_EQ(checkpoint.manifest().programs[0].shards[1].from, "00000000000000aa");
  EXPECT_EQ(test::read(checkpoint, 0),
            (test::Files{{"core-1.img", "the core of the first"},
                         {"empty.img", ""},
                         {"layer.img", "what an earlier one has written"}}));
  EXPECT_EQ(test::read(checkpoint, 1), (test::Files{{"pages-1.img", std::string(100, 'p') + "q"}}));
}

}  // namespace
}  // namespace ferry::store
