#include "host/proc/written_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/unique_fd.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using ferry::test::failure_of;
using ferry::test::Folder;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(WrittenFiles, AreThoseThatAreOpenForWriting) {
  const Folder folder;
  const std::string written = folder.write("written", "abc"), read = folder.write("read", "abcd");
  const std::string gone = folder.write("gone", "x");
  const UniqueFd writes(::open(written.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  const UniqueFd reads(::open(read.c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd deleted(::open(gone.c_str(), O_RDWR | O_CLOEXEC));
  std::filesystem::remove(gone);
  const auto files = written_files(::getpid());
  EXPECT_THAT(files, Contains(WrittenFile{written, 3}));
  EXPECT_THAT(files, Not(Contains(WrittenFile{read, 4})));
  for (const auto& file : files) EXPECT_THAT(file.path, Not(HasSubstr(gone)));
}

TEST(WrittenFiles, WhatIsBehindIsKeptAside) {
  const Folder folder;
  const std::string file = folder.write("file", "before, after"), aside = folder.path("aside");
  ASSERT_EQ(::chmod(file.c_str(), 0640), 0);
  EXPECT_EQ(cut_back({file, 6}, aside), aside);
  EXPECT_EQ(folder.read("file"), "before");
  EXPECT_EQ(folder.read("aside"), ", after");
  struct stat facts {};
  ASSERT_EQ(::stat(aside.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0640u);
  EXPECT_EQ(cut_back({file, 6}, aside), "");
  folder.write("file", "before, again");
  EXPECT_EQ(cut_back({file, 6}, aside), aside + ".2");
  EXPECT_EQ(folder.read("aside"), ", after");
  EXPECT_EQ(folder.read("aside.2"), ", again");
}

TEST(WrittenFiles, WhatIsMissingIsSaid) {
  const Folder folder;
  const std::string file = folder.write("file", "abc"), aside = folder.path("aside");
  EXPECT_EQ(failure_of([&] {
              cut_back({file, 4}, aside);
            }),
            file + " had 4 bytes at the checkpoint, and has 3 now");
  EXPECT_EQ(failure_of([&] {
              cut_back({folder.path("none"), 0}, aside);
            }),
            "cannot open " + folder.path("none") + ": No such file or directory");
  EXPECT_EQ(failure_of([&] {
              cut_back({file, 1}, folder.path("no/folder"));
            }),
            "cannot keep aside the end of " + file + ": No such file or directory");
  EXPECT_EQ(folder.read("file"), "abc");
  std::filesystem::create_symlink(file, folder.path("link"));
  EXPECT_THAT(failure_of([&] {
                cut_back({folder.path("link"), 1}, aside);
              }),
              HasSubstr("Too many levels of symbolic links"));
}

}  // namespace
}  // namespace ferry::host
