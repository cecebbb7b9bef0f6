// No byte of a checkpoint can change, go or come without its being found, in the file where that is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "made.h"
#include "temporary.h"

namespace ferry::store {
namespace {

using ferry::test::failure_of;
using ferry::test::Folder;
using test::kId;
using test::kOther;
using test::make;
using test::noise;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Damage : public ::testing::Test {
 protected:
  Damage() {
    make(folder_.path(), kId, {{{"a", noise(700, 1)}, {"b", std::string(900, 'b')}}}, 1000);
  }
  std::string name(const std::string& file) const { return std::string(kId) + "/" + file; }
  std::string path(const std::string& file) const { return folder_.path(name(file)); }
  // What reading all of the checkpoint says.
  std::string verified() const {
    return failure_of([&] { Store(folder_.path()).open(kId).verify(); });
  }
  std::vector<std::string> files() const {
    return {"manifest.json", "0000-000000.zst", "0000-000001.zst"};
  }

  const Folder folder_;
};

TEST_F(Damage, OfNothingIsNone) {
  EXPECT_EQ(verified(), "");
  for (const auto& file : files()) EXPECT_TRUE(std::filesystem::exists(path(file))) << file;
}

TEST_F(Damage, EveryByteCounts) {
  for (const auto& file : files()) {
    const std::string whole = folder_.read(name(file));
    std::fstream open(path(file), std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](std::size_t i, int byte) {
      open.seekp(static_cast<std::streamoff>(i));
      open.put(static_cast<char>(byte));
      open.flush();
    };
    for (std::size_t i = 0; i < whole.size(); ++i) {
      put(i, whole[i] ^ 0x04);
      EXPECT_THAT(verified(), StartsWith(path(file))) << "byte " << i;
      put(i, whole[i]);
    }
  }
  EXPECT_EQ(verified(), "");
}

TEST_F(Damage, EveryLengthCounts) {
  for (const auto& file : files()) {
    const std::string whole = folder_.read(name(file));
    for (std::size_t size = 0; size < whole.size(); size += size < 20 ? 1 : 37) {
      folder_.write(name(file), whole.substr(0, size));
      EXPECT_THAT(verified(), StartsWith(path(file) + " is damaged")) << size;
    }
    folder_.write(name(file), whole + '\0');
    EXPECT_THAT(verified(), StartsWith(path(file) + " is damaged"));
    folder_.write(name(file), whole);
  }
}

TEST_F(Damage, AFileIsMissing) {
  for (const auto& file : files()) {
    std::filesystem::rename(path(file), folder_.path("aside"));
    EXPECT_EQ(verified(), "cannot read " + path(file) + ": No such file or directory");
    std::filesystem::rename(folder_.path("aside"), path(file));
  }
}

TEST_F(Damage, AFileIsTooMuch) {
  folder_.write(name("0000-000002.zst"), "");
  EXPECT_EQ(verified(), path("0000-000002.zst") + " does not belong to the checkpoint");
}

TEST_F(Damage, AShardOfAnotherCheckpoint) {
  make(folder_.path(), kOther, {{{"a", noise(700, 2)}, {"b", std::string(900, 'b')}}}, 1000);
  folder_.write(name("0000-000000.zst"), folder_.read(std::string(kOther) + "/0000-000000.zst"));
  EXPECT_EQ(verified(), path("0000-000000.zst") + " is damaged: its digest is another one");
}

TEST_F(Damage, AManifestOfAnotherCheckpoint) {
  make(folder_.path(), kOther, {{{"a", "a"}}}, 1000);
  folder_.write(name("manifest.json"), folder_.read(std::string(kOther) + "/manifest.json"));
  EXPECT_EQ(verified(), path("manifest.json") + " is of the checkpoint " + kOther);
}

TEST_F(Damage, ShardsAreNoSymbolicLinks) {
  std::filesystem::rename(path("0000-000000.zst"), folder_.path("aside"));
  std::filesystem::create_symlink(folder_.path("aside"), path("0000-000000.zst"));
  EXPECT_THAT(verified(), HasSubstr(path("0000-000000.zst") + ": Too many levels of symbolic"));
}

TEST_F(Damage, ShardsAreNoFolders) {
  std::filesystem::remove(path("0000-000000.zst"));
  std::filesystem::create_directory(path("0000-000000.zst"));
  EXPECT_EQ(verified(), path("0000-000000.zst") + " is no regular file");
}

TEST_F(Damage, IsListedBesideTheOthers) {
  make(folder_.path(), kOther, {{{"a", "a"}}}, 1000);
  folder_.write(name("manifest.json"), "{");
  const auto entries = Store(folder_.path()).list();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_TRUE(entries[0].manifest);
  EXPECT_EQ(entries[1].id, kId);
  EXPECT_EQ(entries[1].problem, path("manifest.json") + " is damaged: it is no manifest");
}

}  // namespace
}  // namespace ferry::store
