#include "base/log.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/log_fields.h"
#include "temporary.h"

namespace ferry {
namespace {

using test::Folder;

// What a process logs whose stderr is a file; JOURNAL_STREAM names that file, or another one.
std::string logged(bool in_journal) {
  const Folder folder;
  const std::string path = folder.path("log");
  const pid_t child = ::fork();
  if (child == 0) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(file, STDERR_FILENO);
    struct stat status {};
    ::fstat(file, &status);
    const auto inode = status.st_ino + (in_journal ? 0 : 1);
    ::setenv("JOURNAL_STREAM", fmt::format("{}:{}", status.st_dev, inode).c_str(), 1);
    spdlog::drop_all();
    log::begin();
    log::info("one {}", 1);
    log::warn("two\nlines\x1b[31m");
    log::error("bad");
    log::end();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return folder.read("log");
}

TEST(Log, HasThePriorityInTheJournal) {
  EXPECT_EQ(logged(true), "<6>one 1\n<4>two lines [31m\n<3>bad\n");
}

TEST(Log, HasTheTimeElsewhere) {
  const std::string text = logged(false);
  EXPECT_EQ(text.substr(4, 1), "-");
  EXPECT_NE(text.find(" info: one 1\n"), std::string::npos);
  EXPECT_NE(text.find(" warning: two lines [31m\n"), std::string::npos);
  EXPECT_EQ(text.find('<'), std::string::npos);
}

TEST(Log, FieldsAreQuotedWhereNeeded) {
  EXPECT_EQ(log::field("step", "restore"), " step=restore");
  EXPECT_EQ(log::field("to", ""), " to=\"\"");
  EXPECT_EQ(log::field("step", "copy ahead"), " step=\"copy ahead\"");
  EXPECT_EQ(log::field("reason", "a=\"b\\c\""), " reason=\"a=\\\"b\\\\c\\\"\"");
}

}  // namespace
}  // namespace ferry
