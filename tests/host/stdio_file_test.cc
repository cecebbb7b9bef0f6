#include "host/units/stdio_file.h"
#include "host/proc/process_tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "ferry.pb.h"
#include "host/move/settle.h"
#include "host/proc/process_tree.h"
#include "played_process.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using test::eventually;
using test::failure_of;
using test::Folder;

constexpr uid_t kNobody = 65534;

// A file system of one page, which nobody else sees and which goes with the test.
class SmallDisk {
 public:
  SmallDisk() {
    const UniqueFd context(::fsopen("tmpfs", FSOPEN_CLOEXEC));
    if (!context || ::fsconfig(context.get(), FSCONFIG_SET_STRING, "size", "4096", 0) != 0 ||
        ::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
      return;
    }
    root_.reset(::fsmount(context.get(), FSMOUNT_CLOEXEC, 0));
  }
  bool is_there() const { return static_cast<bool>(root_); }
  std::string path(const std::string& name) const {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(root_.get()) + "/" +
           name;
  }
  void fill() const {
    std::ofstream(path("filler")) << std::string(4096, 'x');
    EXPECT_EQ(std::filesystem::file_size(path("filler")), 4096u);
  }
  void make_room() const { std::filesystem::remove(path("filler")); }

 private:
  UniqueFd root_;
};

// What a ferryd that is started meanwhile would have as its log.
class Log {
 public:
  Log() {
    const UniqueFd file(::open(folder_.write("log", "").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    ::dup2(file.get(), STDERR_FILENO);
  }
  ~Log() { ::dup2(stderr_.get(), STDERR_FILENO); }
  std::size_t count(const std::string& text) const {
    const std::string log = folder_.read("log");
    std::size_t found = 0;
    for (auto at = log.find(text); at != log.npos; at = log.find(text, at + 1)) ++found;
    return found;
  }

 private:
  const Folder folder_;
  const UniqueFd stderr_{::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)};
};

class EndFor : public ::testing::TestWithParam<Outward::Kind> {};

TEST_P(EndFor, WritesToTheFile) {
  const Folder folder;
  const StdioFile file{folder.write("out", "before\n"), 0, 0, 0};
  UniqueFd end = end_for({GetParam(), "", true, true}, file);
  EXPECT_EQ(::isatty(end.get()) == 1, GetParam() == Outward::Kind::kTerminal);
  ASSERT_EQ(::write(end.get(), "said", 4), 4);
  // While it is open still: nobody waits for the end of the program to read what it says.
  EXPECT_TRUE(eventually([&] { return folder.read("out") == "before\nsaid"; }));
  ASSERT_EQ(::write(end.get(), ", and more", 10), 10);
  end.reset();
  EXPECT_TRUE(eventually([&] { return folder.read("out") == "before\nsaid, and more"; }));
}

// The program waits, as it would for a terminal that nobody reads; it does not end, and nothing is lost.
TEST_P(EndFor, WaitsWhileTheDiskIsFull) {
  const SmallDisk disk;
  if (!disk.is_there()) GTEST_SKIP() << "cannot make a tmpfs";
  const StdioFile file{disk.path("out"), 0, 0, 0};
  disk.fill();
  const Log log;
  UniqueFd end = end_for({GetParam(), "", true, true}, file);
  ASSERT_EQ(::write(end.get(), "said", 4), 4);
  const std::string said =
      "cannot write " + file.path + ": No space left on device; what is printed waits";
  ASSERT_TRUE(eventually([&] { return log.count(said) > 0; }));
  ASSERT_EQ(::write(end.get(), ", and more", 10), 10);
  EXPECT_EQ(std::filesystem::file_size(file.path), 0u);
  disk.make_room();
  // Nobody has to write for what waits.
  const auto written = [&] {
    std::ifstream in(file.path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_TRUE(eventually([&] { return written() == "said, and more"; }));
  EXPECT_EQ(log.count("cannot write "), 1u);
  ASSERT_EQ(::write(end.get(), ".", 1), 1);
  end.reset();
  EXPECT_TRUE(eventually([&] { return written() == "said, and more."; }));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EndFor,
                         ::testing::Values(Outward::Kind::kPipe, Outward::Kind::kUnix,
                                           Outward::Kind::kTerminal));

TEST(EndFor, InputOfAPipeOrAConnectionIsAtItsEnd) {
  const Folder folder;
  const StdioFile file{folder.path("out"), 0, 0, 0};
  for (const auto kind : {Outward::Kind::kPipe, Outward::Kind::kUnix}) {
    const UniqueFd end = end_for({kind, "", true, false}, file);
    char byte = 0;
    EXPECT_EQ(::read(end.get(), &byte, 1), 0);
  }
}

// Who opens /dev/stdout opens it anew.
TEST(EndFor, IsTheProgramsOwnAlsoWhenRootMovesIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const Folder folder;
  for (const auto kind : {Outward::Kind::kPipe, Outward::Kind::kTerminal}) {
    const UniqueFd end = end_for({kind, "", true, true}, {folder.path("out"), 0, 0, kNobody});
    struct stat status {};
    ASSERT_EQ(::fstat(end.get(), &status), 0);
    EXPECT_EQ(status.st_uid, kNobody);
  }
}

TEST(StdioFile, IsMadeWhereItIsNot) {
  const Folder folder;
  EXPECT_EQ(failure_of([&] { check_stdio_file({folder.path("new"), 0, 0, 0}); }), "");
  EXPECT_FALSE(std::filesystem::exists(folder.path("new")));  // by a check
  pipe_into({folder.path("new"), 0, 0, 0});
  EXPECT_TRUE(std::filesystem::exists(folder.path("new")));
}

TEST(StdioFile, HasAFolderAndIsAFile) {
  const Folder folder;
  for (const auto& path : {folder.path("no/file"), std::string("file")}) {
    EXPECT_EQ(failure_of([&] {
                check_stdio_file({path, 0, 0, 0});
              }),
              "there is no folder for --stdio " + path);
  }
  EXPECT_EQ(failure_of([&] {
              check_stdio_file({folder.path(), 0, 0, 0});
            }),
            folder.path() + ", of --stdio, is no regular file");
}

// It has ferryd's log, which a user could write to by tracing it.
TEST(StdioFile, WhoCopiesIsNotItsUsersToTrace) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const Folder folder;
  ASSERT_EQ(::chown(folder.path().c_str(), kNobody, kNobody), 0);
  const UniqueFd end = pipe_into({folder.path("out"), kNobody, kNobody, kNobody});
  const auto target = [](pid_t pid, int fd) {
    std::error_code ignored;
    return std::filesystem::read_symlink(
        "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd), ignored);
  };
  pid_t copies = 0;
  for (const pid_t pid : all_processes()) {
    if (program_name(pid) == "ferry-append" && target(pid, 3) == target(::getpid(), end.get())) {
      copies = pid;
    }
  }
  ASSERT_NE(copies, 0);
  EXPECT_EQ(user_of(copies), kNobody);
  struct stat status {};
  ASSERT_EQ(::stat(("/proc/" + std::to_string(copies) + "/fd").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 0u);  // as of each process that is not dumpable
}

// A check that only looks at permissions would let them pass, and the move fail after the stop.
TEST(StdioFile, IsOpenedByTheCheckAsItWillBe) {
  const Folder folder;
  const std::string busy = folder.path("busy");
  std::filesystem::copy_file("/bin/sleep", busy);
  const pid_t runs = ::fork();
  if (runs == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execl(busy.c_str(), "sleep", "600", nullptr);
    ::_exit(127);
  }
  ASSERT_TRUE(eventually([&] { return program_name(runs) == "busy"; }));
  EXPECT_EQ(failure_of([&] {
              check_stdio_file({busy, 0, 0, 0});
            }),
            "user 0 cannot write " + busy + ", of --stdio: Text file busy; name another file");
  ::kill(runs, SIGKILL);
  ::waitpid(runs, nullptr, 0);
  std::filesystem::create_symlink(folder.path("nothing"), folder.path("link"));
  EXPECT_EQ(failure_of([&] {
              check_stdio_file({folder.path("link"), 0, 0, 0});
            }),
            folder.path("link") + ", of --stdio, is a link to nothing; name the file itself");
  ASSERT_EQ(::mkfifo(folder.path("fifo").c_str(), 0600), 0);  // a check does not wait for a reader
  EXPECT_EQ(failure_of([&] {
              check_stdio_file({folder.path("fifo"), 0, 0, 0});
            }),
            folder.path("fifo") + ", of --stdio, is no regular file");
}

// fs.protected_regular, 2 on Debian: what a user has put into a folder for all is nobody else's to open, not root's.
TEST(StdioFile, OfAnotherUserInAFolderForAllIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  int level = 0;
  std::ifstream("/proc/sys/fs/protected_regular") >> level;
  if (level == 0) GTEST_SKIP() << "this machine lets everybody: fs.protected_regular is 0";
  const Folder folder;
  const std::string path = folder.write("out", "before\n");
  ASSERT_EQ(::chmod(folder.path().c_str(), 01777), 0);
  ASSERT_EQ(::chown(path.c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(failure_of([&] {
              check_stdio_file({path, 0, 0, 0});
            }),
            "user 0 cannot write " + path + ", of --stdio: Permission denied; name another file");
  EXPECT_EQ(failure_of([&] { check_stdio_file({path, kNobody, kNobody, 0}); }), "");
}

// ferryd is root: what a user names is opened as that user would.
TEST(StdioFile, IsOpenedWithTheRightsOfItsUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const Folder folder;
  const StdioFile roots{folder.write("roots", "secret\n"), kNobody, kNobody, kNobody};
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(roots.path.c_str(), 0644), 0);
  EXPECT_EQ(failure_of([&] { check_stdio_file(roots); }),
            "user 65534 cannot write " + roots.path +
                ", of --stdio: Permission denied; name another file");
  EXPECT_NE(failure_of([&] { pipe_into(roots); }), "");
  const StdioFile made{folder.path("made"), kNobody, kNobody, kNobody};
  EXPECT_EQ(failure_of([&] { check_stdio_file(made); }),
            "user 65534 cannot write " + made.path +
                ", of --stdio: Permission denied; name another file");
  // A link of the user's to root's file.
  std::filesystem::create_symlink(roots.path, folder.path("link"));
  EXPECT_NE(failure_of([&] {
              check_stdio_file({folder.path("link"), kNobody, kNobody, kNobody});
            }),
            "");
  EXPECT_EQ(folder.read("roots"), "secret\n");
  ASSERT_EQ(::chown(folder.path().c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(failure_of([&] { check_stdio_file(made); }), "");
  pipe_into(made);
  struct stat status {};
  ASSERT_EQ(::stat(made.path.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, kNobody);
  EXPECT_EQ(status.st_gid, kNobody);
}

TEST(Redirection, IsTheSameBehindTheNetwork) {
  v1::Redirection message;
  to_message({{"/out", 7, 8, 9}, {{Outward::Kind::kTerminal, "tty[8800:1a]", true, false}}},
             &message);
  const auto back = from_message(message);
  EXPECT_EQ(back.file.path, "/out");
  EXPECT_EQ(back.file.user, 7u);
  EXPECT_EQ(back.file.group, 8u);
  EXPECT_EQ(back.file.owner, 9u);
  ASSERT_EQ(back.streams.size(), 1u);
  EXPECT_EQ(back.streams[0].kind, Outward::Kind::kTerminal);
  EXPECT_EQ(back.streams[0].id, "tty[8800:1a]");
  EXPECT_TRUE(back.streams[0].reads && !back.streams[0].writes);
  message.mutable_streams(0)->set_kind(static_cast<v1::Redirection::Kind>(3));
  EXPECT_EQ(failure_of([&] { from_message(message); }), "malformed request");
}

}  // namespace
}  // namespace ferry::host
