#include "base/kept_library.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/build_id.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

// A folder with a copy of a library: this program, which has a build id as well.
class KeptLibrary : public testing::Test {
 protected:
  KeptLibrary() {
    fs::create_directories(copy_);
    fs::copy_file(library_, file_);
    for (const auto& each : {folder_, copy_}) ::chmod(each.c_str(), 0755);
    ::chmod(file_.c_str(), 0644);
  }
  ~KeptLibrary() override { fs::remove_all(folder_); }

  const std::string library_ = fs::read_symlink("/proc/self/exe");
  const std::string folder_ = "/tmp/ferry-kept-test." + std::to_string(::getpid());
  const std::string copy_ = folder_ + "/" + build_id(), file_ = copy_ + "/libferry.so";
};

TEST_F(KeptLibrary, IsTakenWhenOnlyRootCanWriteToIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes such a folder";
  EXPECT_EQ(kept_library(library_, folder_), file_);
  for (const auto& each : {folder_, copy_, file_}) {
    struct stat status {};
    ASSERT_EQ(::stat(each.c_str(), &status), 0);
    ::chmod(each.c_str(), (status.st_mode & 07777) | S_IWGRP);
    EXPECT_EQ(kept_library(library_, folder_), library_) << each;
    ::chmod(each.c_str(), status.st_mode & 07777);
    ASSERT_EQ(::lchown(each.c_str(), 1, 0), 0);
    EXPECT_EQ(kept_library(library_, folder_), library_) << each;
    ASSERT_EQ(::lchown(each.c_str(), 0, 0), 0);
  }
  EXPECT_EQ(kept_library(library_, folder_), file_);
}

TEST_F(KeptLibrary, IsNeitherALinkNorAnotherBuilds) {
  fs::rename(file_, folder_ + "/elsewhere");
  fs::create_symlink("../elsewhere", file_);
  EXPECT_EQ(kept_library(library_, folder_), library_);
  fs::rename(copy_, folder_ + "/0123456789");
  EXPECT_EQ(kept_library(library_, folder_), library_);
  EXPECT_EQ(kept_library("/dev/null", folder_), "/dev/null");
}

}  // namespace
}  // namespace ferry
