#include "host/units/outward.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

namespace ferry::host {
namespace {

// The other ends are this test's, but of UNIX connections: those to this process count as the library's.
struct Ends {
  int theirs = -1, ours = -1;
};
Ends pipe_to_us() {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  return {ends[1], ends[0]};
}
Ends pipe_from_us() {
  const Ends ends = pipe_to_us();
  return {ends.ours, ends.theirs};
}
Ends terminal() {
  Ends ends;
  EXPECT_EQ(::openpty(&ends.ours, &ends.theirs, nullptr, nullptr, nullptr), 0);
  return ends;
}

// A child that has these descriptors as its standard input, output and error and behind them, and no others.
class Child {
 public:
  explicit Child(const std::vector<int>& descriptors) {
    std::vector<int> high;
    for (const int fd : descriptors) high.push_back(::fcntl(fd, F_DUPFD, 500));
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (std::size_t i = 0; i < high.size(); ++i) ::dup2(high[i], static_cast<int>(i));
      ::close_range(static_cast<unsigned>(high.size()), ~0u, 0);
      ::raise(SIGSTOP);
      for (;;) ::pause();
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    ::kill(pid_, SIGCONT);
    for (const int fd : high) ::close(fd);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

int null() {
  static const int fd = ::open("/dev/null", O_RDWR);
  return fd;
}

std::string id_of(const char* kind, int fd) {
  struct stat status {};
  EXPECT_EQ(::fstat(fd, &status), 0);
  return std::string(kind) + ":[" + std::to_string(status.st_ino) + "]";
}

TEST(OuterStreams, ArePipesOfStandardDescriptors) {
  const Ends out = pipe_to_us(), in = pipe_from_us(), other = pipe_to_us();
  const Child child({in.theirs, out.theirs, out.theirs, other.theirs});
  auto streams = outer_streams(child.pid());
  std::sort(streams.begin(), streams.end(),
            [](const auto& a, const auto& b) { return a.reads > b.reads; });
  ASSERT_EQ(streams.size(), 2u);
  EXPECT_EQ(streams[0].id, id_of("pipe", in.theirs));
  EXPECT_TRUE(streams[0].reads && !streams[0].writes);
  EXPECT_EQ(streams[1].id, id_of("pipe", out.theirs));
  EXPECT_TRUE(!streams[1].reads && streams[1].writes);
  EXPECT_EQ(external_name(streams[0]), "");
  for (const auto& ends : {out, in, other}) {
    ::close(ends.ours);
    ::close(ends.theirs);
  }
}

TEST(OuterStreams, AreTerminalsWhoeverHasThemOpenOnce) {
  const Ends ends = terminal();
  const Child child({ends.theirs, ends.theirs, ends.theirs});
  struct stat status {};
  ASSERT_EQ(::fstat(ends.theirs, &status), 0);
  char id[64];
  std::snprintf(id, sizeof id, "tty[%lx:%lx]", static_cast<unsigned long>(status.st_rdev),
                static_cast<unsigned long>(status.st_dev));
  const auto streams = outer_streams(child.pid());
  ASSERT_EQ(streams.size(), 1u);
  EXPECT_EQ(streams[0].kind, Outward::Kind::kTerminal);
  EXPECT_EQ(streams[0].id, id);
  EXPECT_TRUE(streams[0].reads && streams[0].writes);
  EXPECT_EQ(external_name(streams[0]), id);
  ::close(ends.ours);
  ::close(ends.theirs);
}

// As systemd's connections to the journal.
TEST(OuterStreams, AreUnixConnectionsToOthersThanUs) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Child journal({null(), null(), null(), ends[0]});
  const Child service({null(), ends[1], ends[1]});
  const std::string id = id_of("socket", ends[1]);
  EXPECT_TRUE(outer_streams(service.pid()).empty());  // we have the other end, too
  ::close(ends[0]);
  ::close(ends[1]);
  const auto streams = outer_streams(service.pid());
  ASSERT_EQ(streams.size(), 1u);
  EXPECT_EQ(streams[0].kind, Outward::Kind::kUnix);
  EXPECT_EQ(streams[0].id, id);
  EXPECT_EQ(external_name(streams[0]), "unix" + id.substr(id.find('[')));
}

TEST(OuterStreams, AreNoneWhereAllIsInsideOrAFile) {
  const Ends inside = pipe_to_us();
  const Child child({inside.ours, inside.theirs, null()});
  EXPECT_TRUE(outer_streams(child.pid()).empty());
  ::close(inside.ours);
  ::close(inside.theirs);
}

}  // namespace
}  // namespace ferry::host
