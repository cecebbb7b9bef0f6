#include "store/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/json_text.h"
#include "store/digest.h"
#include "temporary.h"

namespace ferry::store {
namespace {

using ferry::test::failure_of;
using nlohmann::json;
using ::testing::HasSubstr;

Manifest example() {
  Program program{"db", "h1", {{"kind", "process"}}, {{"a", 0600, 3}, {"b", 0644, 4}}, {}};
  program.shards = {{"0000-000000.zst", 20, 5, digest_of("x"), {}, {}},
                    {"0000-000001.zst", 21, 2, digest_of("y"), {}, {}}};
  return {"00000000000000aa", "2026-11-28T13:04:05.678Z", "1.2.3", {program}, {}};
}

// What is said of the manifest after `change`, with a digest that fits.
std::string said_of(const std::function<void(json&)>& change) {
  json whole = json_of(to_text(example()));
  change(whole);
  whole["sha256"] = digest_of(json_text(whole["checkpoint"]));
  return failure_of([&] { parse_manifest(json_text(whole, 1) + "\n", "DIR/manifest.json"); });
}

TEST(Manifest, IsReadAsItWasWritten) {
  EXPECT_EQ(parse_manifest(to_text(example()), "m"), example());
  EXPECT_EQ(said_of([](json&) {}), "");
}

TEST(Manifest, OfALaterFormatIsNotGuessedAt) {
  EXPECT_EQ(said_of([](json& whole) { whole["format"] = 3; }),
            "DIR/manifest.json has the format 3, and this version of Ferry reads formats 1 and 2");
}

TEST(Manifest, WithAnotherDigest) {
  std::string text = to_text(example());
  text.replace(text.find("1.2.3"), 5, "1.2.4");
  EXPECT_EQ(failure_of([&] { parse_manifest(text, "m"); }),
            "m is damaged: its digest is another one");
}

TEST(Manifest, FieldsAreOfTheirTypes) {
  for (const char* field : {"id", "made", "version", "programs"}) {
    EXPECT_THAT(said_of([&](json& whole) { whole["checkpoint"].erase(field); }),
                HasSubstr("is damaged"))
        << field;
    EXPECT_THAT(said_of([&](json& whole) { whole["checkpoint"][field] = 7; }),
                HasSubstr("is damaged"))
        << field;
  }
  for (const char* field : {"name", "host", "facts", "files", "shards"}) {
    EXPECT_THAT(said_of([&](json& whole) { whole["checkpoint"]["programs"][0].erase(field); }),
                HasSubstr("a field is not what it should be"))
        << field;
  }
}

TEST(Manifest, ItWasMadeAtATimeThatCanBe) {
  for (const char* made :
       {"", "x", "2026-11-28T13:04:05Z", "2026-11-28 13:04:05.678Z", "2026-13-28T13:04:05.678Z",
        "2026-11-28T13:04:05.678Z ", "2026-11-28T13:04:05.6789Z", "+026-11-28T13:04:05.678Z"}) {
    EXPECT_THAT(said_of([&](json& whole) { whole["checkpoint"]["made"] = made; }),
                HasSubstr("it was made at no time that can be"))
        << made;
  }
}

TEST(Manifest, NamesNameFilesOfTheFolder) {
  for (const char* name : {"", ".", "..", "../a", "/etc/passwd", "a/b", "a\nb"}) {
    EXPECT_THAT(said_of([&](json& whole) {
                  whole["checkpoint"]["programs"][0]["files"][0]["name"] = name;
                }),
                HasSubstr("a file of an image has no name that can be"))
        << name;
    EXPECT_THAT(said_of([&](json& whole) {
                  whole["checkpoint"]["programs"][0]["shards"][0]["file"] = name;
                }),
                HasSubstr("a shard has no name that can be"))
        << name;
  }
}

TEST(Manifest, NoFileIsNamedTwice) {
  EXPECT_THAT(
      said_of([](json& whole) { whole["checkpoint"]["programs"][0]["files"][0]["name"] = "b"; }),
      HasSubstr("a file of an image has no name that can be"));
  EXPECT_THAT(said_of([](json& whole) {
                auto& programs = whole["checkpoint"]["programs"];
                programs.push_back(programs[0]);
              }),
              HasSubstr("a shard has no name that can be"));
}

TEST(Manifest, SizesHaveASum) {
  const auto with = [](std::uint64_t file, std::uint64_t shard) {
    return said_of([&](json& whole) {
      whole["checkpoint"]["programs"][0]["files"][0]["bytes"] = file;
      whole["checkpoint"]["programs"][0]["shards"][0]["content_bytes"] = shard;
    });
  };
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(with(3, 5), "");
  EXPECT_THAT(with(4, 5), HasSubstr("its shards do not have what its images have"));
  EXPECT_THAT(with(kMost, 5), HasSubstr("its sizes have no sum"));
  EXPECT_THAT(with(3, kMost), HasSubstr("its sizes have no sum"));
  EXPECT_THAT(
      said_of([](json& whole) { whole["checkpoint"]["programs"][0]["files"][0]["bytes"] = -1; }),
      HasSubstr("a size is no number"));
}

TEST(Manifest, OfNoPrograms) {
  EXPECT_THAT(said_of([](json& whole) { whole["checkpoint"]["programs"] = json::array(); }),
              HasSubstr("it is of no checkpoint"));
}

TEST(Manifest, NamesAreUtf8) {
  Manifest manifest = example();
  manifest.programs[0].name = "\xff";
  EXPECT_EQ(failure_of([&] { to_text(manifest); }), "a name in the checkpoint is not UTF-8");
  EXPECT_EQ(failure_of([&] { to_text(manifest.programs.front()); }),
            "a name in the checkpoint is not UTF-8");
}

}  // namespace
}  // namespace ferry::store
