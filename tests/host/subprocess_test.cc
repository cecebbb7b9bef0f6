#include "host/proc/subprocess.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "temporary.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using test::Folder;

TEST(Subprocess, GivesOutputStatusAndEnvironment) {
  const auto outcome = run({{"sh", "-c", "cat; echo $X; echo err >&2; exit 3"}, {"X=y"}, "in\n"});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_EQ(outcome.out, "in\ny\n");
  EXPECT_EQ(outcome.err, "err\n");
}

TEST(Subprocess, CarriesMuchBothWays) {
  const std::string much(3 << 20, 'x');
  EXPECT_EQ(run({{"cat"}, {}, much}).out, much);
  EXPECT_TRUE(run({{"true"}, {}, much}).ok());  // does not read it
}

TEST(Subprocess, SaysWhatCannotBeStarted) {
  const auto outcome = run({{"/nonexistent/program"}, {}, {}});
  EXPECT_EQ(outcome.status, 127);
  EXPECT_NE(outcome.err.find("/nonexistent/program: No such file"), std::string::npos);
}

TEST(Subprocess, EndsAfterItsTime) {
  EXPECT_EQ(run({{"sleep", "60"}, {}, {}}, milliseconds(50)).status, 128 + SIGKILL);
}

// In their order, also where their own numbers are among those that they get.
TEST(Subprocess, EndsAfterItsTimeAlsoWithoutOutput) {
  const auto outcome =
      run({{"sh", "-c", "exec >&- 2>&-; exec sleep 1000"}, {}, {}}, milliseconds(300));
  EXPECT_EQ(outcome.status, 128 + SIGKILL);
}

TEST(Subprocess, HandsDownTheDescriptorsThatItShallOnly) {
  Folder folder;
  const int first = ::open(folder.write("first", "one").c_str(), O_RDONLY);
  const int second = ::open(folder.write("second", "two").c_str(), O_RDONLY);
  const int other = ::dup(first);
  Command command{{"sh", "-c", "cat <&3; cat <&4; ls /proc/self/fd | wc -l"}, {}, {}};
  command.descriptors = {second, first};
  EXPECT_EQ(run(command).out, "twoone6\n");  // 0 to 4, and ls's own
  for (const int fd : {first, second, other}) ::close(fd);
}

TEST(Subprocess, RunsInTheBackground) {
  Folder folder;
  const pid_t pid =
      start({{"sh", "-c", "echo out; echo err >&2; kill -9 $$"}, {}, {}}, folder.path("log"));
  ASSERT_GT(pid, 0);
  reap_orphans();  // leaves it to us
  EXPECT_EQ(wait_for(pid), 128 + SIGKILL);
  EXPECT_EQ(folder.read("log"), "out\nerr\n");
}

TEST(Subprocess, ReapsOrphansButNotAdoptedChildren) {
  const auto child = [](int status) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(status);
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
    return pid;
  };
  const pid_t orphan = child(1);
  reap_orphans();
  EXPECT_EQ(::waitpid(orphan, nullptr, WNOHANG), -1);
  const pid_t pid = child(7);
  adopt_child(pid);
  reap_orphans();
  EXPECT_EQ(wait_for(pid), 7);
}

}  // namespace
}  // namespace ferry::host
