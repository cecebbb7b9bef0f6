// PD Lib with drivers that have little room, or that are not there.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>

#include "base/unique_fd.h"
#include "pd_calls.h"

namespace ferry::pipe {
namespace {

TEST(LibraryLimitsTest, AContainerGetsNoMoreThanItsShare) {
  RunningPipe::Settings settings;
  settings.driver.container.memory = 17 << 20;  // with the queues
  RunningPipe pipe(settings);
  ASSERT_EQ(pd_init(chosen_engine_name().c_str(), 8, 8), 0);
  const int first = pd_socket(AF_INET, SOCK_STREAM, 0), second = pd_socket(AF_INET, SOCK_STREAM, 0);
  const int third = pd_socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_NE(pd_malloc_for(first, 1), nullptr);
  EXPECT_NE(pd_malloc_for(second, 1), nullptr);
  EXPECT_EQ(pd_malloc_for(third, 1), nullptr);
  EXPECT_EQ(errno, ENOBUFS);
  pd_close(first);
  EXPECT_NE(pd_malloc_for(third, 1), nullptr);
  pd_release();
}

TEST(LibraryLimitsTest, AConnectionForWhichThereIsNoRoomWaits) {
  RunningPipe::Settings settings;
  settings.driver.container.memory = 9 << 20;
  RunningPipe pipe(settings);
  ASSERT_EQ(pd_init(nullptr, 0, 0), 0);
  std::uint16_t port = 0;
  const int listener = listening_socket(8, &port), other = pd_socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_NE(pd_malloc_for(other, 1), nullptr);
  const UniqueFd kernels(::socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in at = address_at(port);
  ASSERT_EQ(::connect(kernels.get(), pointer(at), sizeof at), 0);
  EXPECT_EQ(pd_accept_timed(listener, nullptr, nullptr, kSoon), -1);
  EXPECT_EQ(errno, ENOBUFS);
  pd_close(other);
  const int sid = pd_accept_timed(listener, nullptr, nullptr, kSoon);
  ASSERT_GE(sid, 0) << std::strerror(errno);
  EXPECT_EQ(::send(kernels.get(), "hello", 5, 0), 5);
  EXPECT_EQ(receive_text(sid, 5), "hello");
  pd_release();
}

// A child listens, and has no descriptor for the connection that comes, which says hello. Then it has some again, and
// does `then`: its exit status.
void expect_without_descriptors(const std::function<int(int listener)>& then) {
  const RunningPipe pipe;
  int ports[2];
  ASSERT_EQ(::pipe(ports), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kSoon / 1000);
    if (pd_init(nullptr, 0, 0) != 0) ::_exit(1);
    std::uint16_t port = 0;
    const int listener = listening_socket(8, &port);
    const int free = ::dup(0);
    ::close(free);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit few{static_cast<rlim_t>(free), limit.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    if (::write(ports[1], &port, sizeof port) != sizeof port) ::_exit(2);
    // A call that waits would need a descriptor.
    while (pd_accept(listener, nullptr, nullptr) == -1 && errno == EAGAIN) ::usleep(1000);
    if (errno != ENOBUFS) ::_exit(3);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::_exit(then(listener));
  }
  ::close(ports[1]);
  std::uint16_t port = 0;
  ASSERT_EQ(::read(ports[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  ::close(ports[0]);
  ASSERT_EQ(pd_init(nullptr, 0, 0), 0);
  const int client = pd_socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in to = address_at(port);
  ASSERT_EQ(pd_connect(client, pointer(to), sizeof to), 0) << std::strerror(errno);
  send_text(client, "hello");
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
  pd_release();
}

TEST(LibraryLimitsTest, AConnectionForWhichThereAreNoDescriptorsWaits) {
  expect_without_descriptors([](int listener) {
    const int sid = pd_accept(listener, nullptr, nullptr);
    return sid >= 0 && receive_text(sid, 5) == "hello" ? 0 : 4;
  });
}

TEST(LibraryLimitsTest, AListenerThatClosesTakesSuchAConnectionWithIt) {
  expect_without_descriptors([](int listener) {
    if (pd_close(listener) != 0) return 4;
    // Both numbers are free again: these sockets have the lowest ones.
    const int first = pd_socket(AF_INET, SOCK_STREAM, 0),
              second = pd_socket(AF_INET, SOCK_STREAM, 0);
    return first + second == 1 && pd_close(first) == 0 && pd_close(second) == 0 ? 0 : 5;
  });
}

TEST(LibraryLimitsTest, BatchesAreSentWhenTheProgramWaits) {
  const RunningPipe pipe;
  ASSERT_EQ(pd_init(chosen_engine_name().c_str(), 1024, 1024), 0);
  const Pair pair = connected_pair();
  send_text(pair.client, "one");
  send_text(pair.client, "two");
  EXPECT_EQ(receive_text(pair.server, 6), "onetwo");
  pd_release();
}

TEST(LibraryLimitsTest, RefusesEnginesThatTheDriverHasNot) {
  const RunningPipe pipe;
  EXPECT_EQ(pd_init("fpga", 0, 0), -1);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_EQ(pd_init(nullptr, 1025, 0), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(LibraryLimitsTest, SaysThatNoDriverRuns) {
  ::setenv("FERRY_PIPE_SOCKET", "/nonexistent/pipe.sock", 1);
  EXPECT_EQ(pd_init(nullptr, 0, 0), -1);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_EQ(pd_socket(AF_INET, SOCK_STREAM, 0), -1);
  EXPECT_EQ(errno, ENODEV);
}

}  // namespace
}  // namespace ferry::pipe
