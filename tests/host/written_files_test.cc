#include "host/proc/written_files.h"

#include <fcntl.h>
#include <fmt/core.h>
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
  EXPECT_THAT(files, Contains(WrittenFile{written, 3, ::getuid()}));
  EXPECT_THAT(files, Not(Contains(WrittenFile{read, 4, ::getuid()})));
  for (const auto& file : files) EXPECT_THAT(file.path, Not(HasSubstr(gone)));
}

WrittenFile then(const std::string& path, std::uint64_t bytes) {
  return {path, bytes, ::getuid()};
}

TEST(LaterFile, KeepsAsideWhatIsBehind) {
  const Folder folder;
  const std::string file = folder.write("file", "before, after");
  ASSERT_EQ(::chmod(file.c_str(), 0640), 0);
  EXPECT_EQ(LaterFile(then(file, 6)).cut_back(".end"), file + ".end");
  EXPECT_EQ(folder.read("file"), "before");
  EXPECT_EQ(folder.read("file.end"), ", after");
  struct stat facts {};
  ASSERT_EQ(::stat((file + ".end").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0640u);
  EXPECT_EQ(LaterFile(then(file, 6)).cut_back(".end"), "");
  folder.write("file", "before, again");
  EXPECT_EQ(LaterFile(then(file, 6)).cut_back(".end"), file + ".end.2");
  EXPECT_EQ(folder.read("file.end"), ", after");
  EXPECT_EQ(folder.read("file.end.2"), ", again");
}

TEST(LaterFile, OfTwoProgramsIsCutBackOnce) {
  const Folder folder;
  const std::string file = folder.write("file", "before, after");
  const LaterFile first(then(file, 6)), second(then(file, 6));
  EXPECT_EQ(first.cut_back(".end"), file + ".end");
  EXPECT_EQ(second.cut_back(".end"), "");
  EXPECT_EQ(folder.read("file"), "before");
}

TEST(LaterFile, ThatIsNotTheSameIsRefused) {
  const Folder folder;
  const std::string file = folder.write("file", "abc"), none = folder.path("none");
  const auto said = [](const WrittenFile& file) { return failure_of([&] { LaterFile{file}; }); };
  EXPECT_EQ(said(then(file, 4)), file + " had 4 bytes at the checkpoint, and has 3 now");
  EXPECT_EQ(said(then(none, 0)), "cannot open " + none + ": No such file or directory");
  EXPECT_EQ(said({file, 3, ::getuid() + 1}),
            fmt::format("{} was of user {} at the checkpoint, and is of user {} now", file,
                        ::getuid() + 1, ::getuid()));
  EXPECT_EQ(said(then(folder.path(), 0)), "cannot open " + folder.path() + ": Is a directory");
}

// Who owns a folder on the way could lead root to any file.
TEST(LaterFile, IsReachedByNoSymbolicLink) {
  const Folder folder;
  std::filesystem::create_directory(folder.path("real"));
  const std::string file = folder.write("real/file", "abc");
  std::filesystem::create_symlink(file, folder.path("real/link"));
  std::filesystem::create_symlink(folder.path("real"), folder.path("folder"));
  for (const char* path : {"real/link", "folder/file"}) {
    EXPECT_EQ(failure_of([&] { LaterFile{then(folder.path(path), 1)}; }),
              "cannot open " + folder.path(path) + ": Too many levels of symbolic links");
  }
  // What is put in the place of an open file's folder has no effect.
  const LaterFile open(then(file, 1));
  std::filesystem::rename(folder.path("real"), folder.path("moved"));
  std::filesystem::create_directory(folder.path("real"));
  folder.write("real/file", "xyz");
  EXPECT_EQ(open.cut_back(".end"), file + ".end");
  EXPECT_EQ(folder.read("real/file"), "xyz");
  EXPECT_EQ(folder.read("moved/file"), "a");
  EXPECT_EQ(folder.read("moved/file.end"), "bc");
}

TEST(LaterFile, ThatCannotBeKeptAsideStaysAsItIs) {
  const Folder folder;
  const std::string file = folder.write("file", "abc");
  const LaterFile later(then(file, 1));
  EXPECT_EQ(failure_of([&] { later.cut_back(std::string(300, 'x')); }),
            "cannot keep aside the end of " + file + ": File name too long");
  EXPECT_EQ(folder.read("file"), "abc");
}

}  // namespace
}  // namespace ferry::host
