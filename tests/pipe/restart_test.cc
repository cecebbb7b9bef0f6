// PD Lib when its driver is killed and another one takes its place: programs see a pause, and every byte once.

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "pd_calls.h"
#include "pipe/library/socket.h"

namespace ferry::pipe {
namespace {

class RestartTest : public testing::Test {
 protected:
  RestartTest() : pipe_(lasting()) { EXPECT_EQ(pd_init(nullptr, 0, 0), 0) << std::strerror(errno); }
  ~RestartTest() override { pd_release(); }

  static RunningPipe::Settings lasting() {
    RunningPipe::Settings settings;
    settings.away = std::chrono::seconds(60);
    return settings;
  }

  RunningPipe pipe_;
};

unsigned char byte_at(std::size_t at) {
  return static_cast<unsigned char>(at * 31 >> 3);
}

// Sends from two buffers, which are written again when they are given back.
void send_stream(int sid, std::size_t size, std::size_t message) {
  std::array<void*, 2> buffers{pd_malloc_for(sid, message), pd_malloc_for(sid, message)};
  for (std::size_t at = 0, turn = 0; at < size; at += message, ++turn) {
    void* buffer[] = {buffers[turn % 2]};
    ASSERT_EQ(pd_buf_refresh_timed(sid, buffer, 1, kSoon), 1) << std::strerror(errno);
    auto* bytes = static_cast<unsigned char*>(buffer[0]);
    for (std::size_t byte = 0; byte < message; ++byte) bytes[byte] = byte_at(at + byte);
    ASSERT_EQ(pd_send_timed(sid, bytes, message, kSoon), static_cast<ssize_t>(message))
        << std::strerror(errno);
  }
}

// Up to the end; how many bytes there were.
std::size_t receive_stream(int sid) {
  std::size_t total = 0;
  for (;;) {
    void* buffer = nullptr;
    const ssize_t got = pd_recv_timed(sid, 100'000, &buffer, kSoon);
    EXPECT_GE(got, 0) << std::strerror(errno) << " after " << total;
    if (got <= 0) return total;
    const auto* bytes = static_cast<const unsigned char*>(buffer);
    for (std::size_t at = 0; at < static_cast<std::size_t>(got); ++at, ++total) {
      if (bytes[at] == byte_at(total)) continue;
      ADD_FAILURE() << "byte " << total;
      return total;
    }
    EXPECT_EQ(pd_recv_done(sid, static_cast<std::size_t>(got)), 0);
  }
}

TEST_F(RestartTest, EveryByteArrivesOnce) {
  constexpr std::size_t kMessage = 1 << 20;
  const std::size_t size =
      (chosen_engine_name() == "rtl" ? 16 : 200) * kMessage;  // it takes longer
  const Pair pair = connected_pair();
  std::atomic<bool> ended = false;
  std::thread there([&] {
    send_stream(pair.client, size, kMessage);
    pd_shutdown(pair.client, SHUT_WR);
  });
  std::thread back([&] {
    send_stream(pair.server, size / 4, 4096);
    pd_shutdown(pair.server, SHUT_WR);
  });
  std::thread reads([&] { EXPECT_EQ(receive_stream(pair.client), size / 4); });
  std::thread kills([&] {
    while (!ended) {
      pipe_.restart();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  EXPECT_EQ(receive_stream(pair.server), size);
  reads.join();
  ended = true;
  for (auto* thread : {&there, &back, &kills}) thread->join();
}

TEST_F(RestartTest, WhoWaitsSeesAPause) {
  const Pair pair = connected_pair();
  const int epoll = pd_epoll_create();
  pd_epoll_event event{PD_EPOLLIN, {}};
  ASSERT_EQ(pd_epoll_ctl(epoll, PD_EPOLL_CTL_ADD, pair.server, &event), 0);
  std::thread in_epoll([&] { EXPECT_EQ(pd_epoll_wait(epoll, &event, 1, kSoon), 1); });
  std::thread in_recv([&] { EXPECT_EQ(receive_text(pair.client, 5), "hello"); });
  std::thread in_accept(
      [&] { EXPECT_GE(pd_accept_timed(pair.listener, nullptr, nullptr, kSoon), 0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  pipe_.restart();
  send_text(pair.client, "question");
  in_epoll.join();
  EXPECT_EQ(receive_text(pair.server, 8), "question");
  send_text(pair.server, "hello");
  in_recv.join();
  sockaddr_in to{};
  socklen_t size = sizeof to;
  pd_getsockname(pair.listener, reinterpret_cast<sockaddr*>(&to), &size);
  to = address_at(ntohs(to.sin_port));
  ASSERT_EQ(pd_connect(pd_socket(AF_INET, SOCK_STREAM, 0), pointer(to), sizeof to), 0);
  in_accept.join();
  pd_epoll_close(epoll);
}

TEST_F(RestartTest, CallsWaitForTheNextDriver) {
  const Pair pair = connected_pair();
  pipe_.kill();
  // Not these.
  void* buffer = nullptr;
  EXPECT_EQ(pd_recv(pair.server, 1, &buffer), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(pd_recv_timed(pair.server, 1, &buffer, 10), -1);
  EXPECT_EQ(errno, EAGAIN);
  std::thread asks([&] {
    const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_GE(sid, 0) << std::strerror(errno);
    EXPECT_NE(sid, pair.server);
    send_text(pair.client, "hello");
    EXPECT_EQ(pd_close(sid), 0);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  pipe_.begin();
  asks.join();
  EXPECT_EQ(receive_text(pair.server, 5), "hello");
}

TEST_F(RestartTest, ABacklogStays) {
  std::uint16_t port = 0;
  const int listener = listening_socket(8, &port);
  const sockaddr_in to = address_at(port);
  for (const char* text : {"first", "other"}) {
    const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(pd_connect(sid, pointer(to), sizeof to), 0) << std::strerror(errno);
    send_text(sid, text);
    pipe_.restart();
  }
  for (const char* text : {"first", "other"}) {
    const int sid = pd_accept_timed(listener, nullptr, nullptr, kSoon);
    ASSERT_GE(sid, 0) << std::strerror(errno);
    EXPECT_EQ(receive_text(sid, 5), text);
  }
  EXPECT_EQ(pd_accept(listener, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
  const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(pd_connect(sid, pointer(to), sizeof to), 0) << std::strerror(errno);
  EXPECT_GE(pd_accept_timed(listener, nullptr, nullptr, kSoon), 0);
}

// More than the receiver's ring has room for.
TEST_F(RestartTest, WhatWasSentBeforeAClosedIsDelivered) {
  const Pair pair = connected_pair();
  constexpr std::size_t kSize = 4 << 20;
  auto* buffer = static_cast<unsigned char*>(pd_malloc_for(pair.client, kSize));
  for (std::size_t at = 0; at < kSize; ++at) buffer[at] = byte_at(at);
  ASSERT_EQ(pd_send_timed(pair.client, buffer, kSize, kSoon), static_cast<ssize_t>(kSize));
  void* refreshed[] = {buffer};
  ASSERT_EQ(pd_buf_refresh_timed(pair.client, refreshed, 1, kSoon), 1);
  for (std::size_t at = 0; at < kSize; ++at) buffer[at] = byte_at(kSize + at);
  ASSERT_EQ(pd_send_timed(pair.client, buffer, kSize, kSoon), static_cast<ssize_t>(kSize));
  ASSERT_EQ(pd_free(buffer), 0);
  ASSERT_EQ(pd_close(pair.client), 0);
  EXPECT_EQ(pd_send(pair.client, buffer, 1), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(pd_free(buffer), -1);
  pipe_.restart();
  EXPECT_NE(pd_socket(AF_INET, SOCK_STREAM, 0), pair.client) << "it is not done with";
  pipe_.restart();
  EXPECT_EQ(receive_stream(pair.server), 2 * kSize);
  // And then its memory is given back.
  EXPECT_TRUE(becomes_true([&] { return pipe_.driver().connections() == 1; }));
  pd_close(pair.server);
  EXPECT_TRUE(becomes_true([&] { return pipe_.driver().connections() == 0; }));
}

TEST_F(RestartTest, WhatHasBeenPointedToStays) {
  const Pair pair = connected_pair();
  send_text(pair.client, "hello, you");
  void* first = nullptr;
  ASSERT_EQ(pd_recv_timed(pair.server, 5, &first, kSoon), 5);
  ASSERT_EQ(pd_shutdown(pair.client, SHUT_WR), 0);
  pipe_.restart();
  EXPECT_EQ(std::memcmp(first, "hello", 5), 0);
  EXPECT_EQ(pd_recv_done(pair.server, 5), 0);
  EXPECT_EQ(receive_text(pair.server, 6), ", you") << "and the end";
  send_text(pair.server, "answer");
  EXPECT_EQ(receive_text(pair.client, 6), "answer");
  EXPECT_EQ(pd_send(pair.client, nullptr, 0), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(RestartTest, WhoseEndWasWhileNoDriverWasThereIsMissed) {
  std::uint16_t port = 0;
  const int listener = listening_socket(8, &port);
  int is_ready[2];
  ASSERT_EQ(::pipe(is_ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (pd_init(nullptr, 0, 0) != 0) ::_exit(1);
    const sockaddr_in to = address_at(port);
    const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
    if (pd_connect(sid, pointer(to), sizeof to) != 0) ::_exit(2);
    send_text(sid, "hello");
    if (::write(is_ready[1], "", 1) != 1) ::_exit(3);
    for (;;) ::pause();
  }
  const int server = pd_accept_timed(listener, nullptr, nullptr, kSoon);
  ASSERT_GE(server, 0);
  char byte = 0;
  EXPECT_EQ(::read(is_ready[0], &byte, 1), 1);
  EXPECT_EQ(receive_text(server, 5), "hello");
  pipe_.kill();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  pipe_.begin();
  void* buffer = nullptr;
  EXPECT_EQ(pd_recv_timed(server, 1, &buffer, kSoon), -1) << "what it has sent nobody knows";
  EXPECT_EQ(errno, ECONNRESET);
  ::close(is_ready[0]);
  ::close(is_ready[1]);
}

// The process goes on, and its program does not come again.
TEST_F(RestartTest, WhoCallsExecIsGivenUp) {
  std::uint16_t port = 0;
  const int listener = listening_socket(8, &port);
  int ends_child[2], is_ready[2];
  ASSERT_EQ(::pipe(ends_child), 0);
  ASSERT_EQ(::pipe(is_ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (pd_init(nullptr, 0, 0) != 0) ::_exit(1);
    const sockaddr_in to = address_at(port);
    const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
    if (pd_connect(sid, pointer(to), sizeof to) != 0) ::_exit(2);
    send_text(sid, "hello");
    char byte = 0;
    if (::write(is_ready[1], "", 1) != 1 || ::read(ends_child[0], &byte, 1) != 1) ::_exit(3);
    ::dup2(ends_child[0], 0);
    ::close_range(3, ~0U, 0);
    ::execl("/bin/cat", "cat", nullptr);
    ::_exit(4);
  }
  const int server = pd_accept_timed(listener, nullptr, nullptr, kSoon);
  ASSERT_GE(server, 0);
  EXPECT_EQ(receive_text(server, 5), "hello");
  char byte = 0;
  EXPECT_EQ(::read(is_ready[0], &byte, 1), 1);
  pipe_.kill();
  EXPECT_EQ(::write(ends_child[1], "", 1), 1);
  EXPECT_TRUE(becomes_true([&] {
    std::string name;
    std::getline(std::ifstream("/proc/" + std::to_string(child) + "/comm"), name);
    return name == "cat";
  }));
  pipe_.settings().away = std::chrono::seconds(1);
  pipe_.begin();
  void* buffer = nullptr;
  EXPECT_EQ(pd_recv_timed(server, 1, &buffer, kSoon), -1) << "what it would have sent nobody knows";
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(::kill(child, 0), 0);
  for (const int each : {ends_child[0], ends_child[1], is_ready[0], is_ready[1]}) ::close(each);
  ::waitpid(child, nullptr, 0);
  pd_close(server);
  EXPECT_TRUE(becomes_true([&] { return pipe_.driver().connections() == 0; }));
}

TEST_F(RestartTest, WhoFindsNoMemoryTriesAgain) {
  pipe_.kill();
  pipe_.settings().pool.limit = 1;
  pipe_.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  pipe_.kill();
  pipe_.settings().pool = {};
  pipe_.begin();
  EXPECT_GE(pd_socket(AF_INET, SOCK_STREAM, 0), 0) << std::strerror(errno);
}

// Connections have theirs.
TEST_F(RestartTest, ASocketThatIsNotConnectedMayFindNoMemory) {
  const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
  auto* buffer = static_cast<char*>(pd_malloc_for(sid, 5));
  ASSERT_NE(buffer, nullptr);
  std::memcpy(buffer, "later", 5);
  const int other = pd_socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_NE(pd_malloc_for(other, 1), nullptr);
  const Pair pair = connected_pair();
  pipe_.settings().pool.limit = pipe_.pool().used() - (std::size_t{8} << 20) - 1;  // for neither
  pipe_.restart();
  send_text(pair.client, "hello");
  EXPECT_EQ(receive_text(pair.server, 5), "hello");
  sockaddr_in to{};
  socklen_t size = sizeof to;
  pd_getsockname(pair.listener, reinterpret_cast<sockaddr*>(&to), &size);
  to = address_at(ntohs(to.sin_port));
  EXPECT_EQ(pd_connect(sid, pointer(to), sizeof to), -1);
  EXPECT_EQ(errno, ENOBUFS);
  EXPECT_EQ(pd_close(other), 0);
  pipe_.settings().pool = {};
  pipe_.restart();
  ASSERT_EQ(pd_connect(sid, pointer(to), sizeof to), 0) << std::strerror(errno);
  ASSERT_EQ(pd_send(sid, buffer, 5), 5);
  const int server = pd_accept_timed(pair.listener, nullptr, nullptr, kSoon);
  ASSERT_GE(server, 0);
  EXPECT_EQ(receive_text(server, 5), "later");
}

// The place of a buffer is another buffer's before its sender hears that it is done.
TEST_F(RestartTest, BuffersComeAndGo) {
  constexpr std::size_t kMessage = 256 << 10, kSize = 64 * kMessage;
  const Pair pair = connected_pair();
  std::atomic<bool> ended = false;
  std::thread sends([&] {
    for (std::size_t at = 0; at < kSize; at += kMessage) {
      unsigned char* buffer = nullptr;
      EXPECT_TRUE(becomes_true([&] {
        buffer = static_cast<unsigned char*>(pd_malloc_for(pair.client, kMessage));
        return buffer != nullptr || errno != ENOMEM;
      }));
      ASSERT_NE(buffer, nullptr) << std::strerror(errno);
      for (std::size_t byte = 0; byte < kMessage; ++byte) buffer[byte] = byte_at(at + byte);
      ASSERT_EQ(pd_send_timed(pair.client, buffer, kMessage, kSoon),
                static_cast<ssize_t>(kMessage));
      ASSERT_EQ(pd_free(buffer), 0) << std::strerror(errno);
    }
    pd_shutdown(pair.client, SHUT_WR);
  });
  std::thread kills([&] {
    while (!ended) {
      pipe_.restart();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  EXPECT_EQ(receive_stream(pair.server), kSize);
  ended = true;
  sends.join();
  kills.join();
}

TEST_F(RestartTest, WhoForksDoesNotWaitForRelease) {
  pipe_.kill();
  std::thread releases([] { EXPECT_EQ(pd_release(), 0); });
  const int none = 1 << 20;
  EXPECT_TRUE(becomes_true([] { return pd_close(none) < 0 && errno == ENODEV; }));
  auto forks = std::async(std::launch::async, [] {
    return in_child([] { return pd_init(nullptr, 0, 0) != 0 && errno == ENODEV ? 0 : 1; });
  });
  EXPECT_EQ(forks.wait_for(std::chrono::milliseconds(kSoon)), std::future_status::ready);
  pipe_.begin();
  releases.join();
  EXPECT_EQ(forks.get(), 0);
}

// As where systemd listens, and nothing can be started that accepts.
TEST_F(RestartTest, WhoFindsNoRoomInABacklogGivesUpInTime) {
  pd_release();
  pipe_.kill();
  pipe_.settings().away = std::chrono::milliseconds(200);
  pipe_.begin();
  ASSERT_EQ(pd_init(nullptr, 0, 0), 0);
  pipe_.kill();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, std::getenv("FERRY_PIPE_SOCKET"), sizeof address.sun_path - 1);
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  const auto socket = [] {
    return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  };
  const UniqueFd listener = socket();
  ASSERT_EQ(::bind(listener.get(), name, sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  std::vector<UniqueFd> others;
  do {
    others.push_back(socket());
  } while (::connect(others.back().get(), name, sizeof address) == 0);
  EXPECT_EQ(errno, EAGAIN);
  auto asks = std::async(std::launch::async,
                         [] { return pd_socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == ENODEV; });
  EXPECT_EQ(asks.wait_for(std::chrono::milliseconds(kSoon)), std::future_status::ready);
  ::unlink(address.sun_path);
  pipe_.begin();
  EXPECT_TRUE(asks.get());
}

TEST(SocketTest, AFreedBlockIsForgottenWhereANewOneIs) {
  pd::Socket socket;
  const auto give = [&](std::uint64_t offset, std::uint32_t index) {
    socket.add_block(offset, {4096, index, 0});
    socket.blocks.at(offset).last_send = ++socket.sent;
    socket.free_block(offset);
  };
  give(0, 0);
  give(4096, 1);
  give(8192, 2);
  give(16384, 3);
  EXPECT_EQ(socket.freed.size(), 4U);
  socket.add_block(2048, {4096, 7, 0});  // where the first two were, so that their sends are done
  EXPECT_EQ(socket.done, 2U);
  EXPECT_EQ(socket.freed.size(), 2U);
  socket.add_block(65536, {4096, 2, 0});  // has the number of the third one
  EXPECT_EQ(socket.done, 3U);
  EXPECT_EQ(socket.freed.size(), 1U);
  EXPECT_TRUE(socket.freed.contains(16384));
  give(16384, 9);
  EXPECT_EQ(socket.freed.at(16384).index, 9U);
  socket.done = socket.sent.load();
  socket.forget_freed();
  EXPECT_TRUE(socket.freed.empty());
}

TEST_F(RestartTest, ThePeerOfWhoHasClosedBeforeSeesTheEnd) {
  const Pair pair = connected_pair();
  send_text(pair.client, "hello");
  EXPECT_EQ(receive_text(pair.server, 5), "hello");
  ASSERT_EQ(pd_close(pair.client), 0);
  pipe_.restart();
  void* buffer = nullptr;
  EXPECT_EQ(pd_recv_timed(pair.server, 1, &buffer, kSoon), 0) << std::strerror(errno);
}

TEST_F(RestartTest, WhoHasForkedGoesOn) {
  const Pair pair = connected_pair();
  int goes_on[2];
  ASSERT_EQ(::pipe(goes_on), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kSoon / 1000);
    ::dup2(goes_on[0], 0);
    ::close_range(3, ~0U, 0);  // the driver's ends as well, as it is of this process here
    char byte = 0;
    if (::read(0, &byte, 1) != 1) ::_exit(1);
    ::_exit(pd_init(nullptr, 0, 0) == 0 && pd_socket(AF_INET, SOCK_STREAM, 0) >= 0 ? 0 : 2);
  }
  pipe_.restart();
  send_text(pair.client, "hello");
  EXPECT_EQ(receive_text(pair.server, 5), "hello");
  EXPECT_EQ(::write(goes_on[1], "", 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ::close(goes_on[0]);
  ::close(goes_on[1]);
}

TEST_F(RestartTest, RulesAreThoseOfTheNextDriver) {
  const Pair pair = connected_pair();
  pipe_.kill();
  pipe_.begin("deny 127.0.0.1 any");
  void* buffer = nullptr;
  EXPECT_EQ(pd_recv_timed(pair.server, 1, &buffer, kSoon), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST_F(RestartTest, WhoHasForgottenAConnectionResetsIt) {
  const Pair pair = connected_pair();
  pipe_.kill();
  pipe_.forget_records();
  pipe_.begin();
  void* buffer = nullptr;
  EXPECT_EQ(pd_recv_timed(pair.server, 1, &buffer, kSoon), -1);
  EXPECT_EQ(errno, ECONNRESET);
  std::uint16_t port = 0;
  listening_socket(8, &port);
}

}  // namespace
}  // namespace ferry::pipe
