#include "host/checkpoint/own_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "temporary.h"

namespace ferry::host {
namespace {

using ferry::test::failure_of;
using ferry::test::Folder;
using ::testing::StartsWith;

constexpr uid_t kOther = 12345;

// Below /tmp, where everybody may write, and rename nothing of others.
class OwnFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::getuid() != 0) GTEST_SKIP() << "needs root";
    std::filesystem::create_directory(store_);
    std::filesystem::create_directory(store_ + "/a");
    folder_.write("store/a/manifest.json", "{}");
  }
  static std::string refused(const std::string& path) {
    return path + " can be written by others than root";
  }

  const Folder folder_;
  const std::string store_ = folder_.path("store");
};

TEST_F(OwnFolder, OfRootIsTaken) {
  EXPECT_EQ(need_own_folder(store_), store_);
  EXPECT_EQ(need_own_contents(store_ + "/a"), store_ + "/a");
  std::filesystem::create_directory_symlink(store_, folder_.path("link"));
  EXPECT_EQ(need_own_folder(folder_.path("link")), store_);
  EXPECT_EQ(failure_of([&] { need_own_folder(folder_.path("none")); }),
            "cannot read " + folder_.path("none") + ": No such file or directory");
}

TEST_F(OwnFolder, OfSomebodyElseIsRefused) {
  ASSERT_EQ(::chown(store_.c_str(), kOther, kOther), 0);
  EXPECT_THAT(failure_of([&] { need_own_folder(store_); }), StartsWith(refused(store_)));
  ASSERT_EQ(::chown(store_.c_str(), 0, 0), 0);
  for (const mode_t mode : {0720, 0702, 01777}) {
    ASSERT_EQ(::chmod(store_.c_str(), mode), 0);
    EXPECT_THAT(failure_of([&] { need_own_folder(store_); }), StartsWith(refused(store_))) << mode;
  }
}

TEST_F(OwnFolder, BelowSomebodyElsesIsRefused) {
  ASSERT_EQ(::chown(folder_.path().c_str(), kOther, kOther), 0);
  EXPECT_THAT(failure_of([&] { need_own_folder(store_); }), StartsWith(refused(folder_.path())));
  EXPECT_THAT(failure_of([&] { need_own_contents(store_ + "/a"); }),
              StartsWith(refused(folder_.path())));
  // Not even with the sticky bit: the owner of the folder may rename what is in it.
  ASSERT_EQ(::chmod(folder_.path().c_str(), 01777), 0);
  EXPECT_THAT(failure_of([&] { need_own_folder(store_); }), StartsWith(refused(folder_.path())));
}

TEST_F(OwnFolder, WithSomebodyElsesFileIsRefused) {
  const std::string file = store_ + "/a/manifest.json";
  ASSERT_EQ(::chown(file.c_str(), kOther, kOther), 0);
  EXPECT_THAT(failure_of([&] { need_own_contents(store_ + "/a"); }), StartsWith(refused(file)));
}

}  // namespace
}  // namespace ferry::host
