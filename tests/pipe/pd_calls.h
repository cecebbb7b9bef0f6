#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "base/failure.h"
#include "ferry/pd.h"
#include "running_pipe.h"

// What tests of PD Lib do again and again.
namespace ferry::pipe {

inline constexpr int kSoon =
    20'000;  // milliseconds: long, for what comes at once unless the machine is busy

inline sockaddr_in address_at(std::uint16_t port, const char* ip = "127.0.0.1") {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, ip, &address.sin_addr);
  return address;
}
inline const sockaddr* pointer(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

inline int listening_socket(int backlog, std::uint16_t* port) {
  const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in any = address_at(0);
  EXPECT_EQ(pd_bind(sid, pointer(any), sizeof any), 0) << std::strerror(errno);
  EXPECT_EQ(pd_listen(sid, backlog), 0) << std::strerror(errno);
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  EXPECT_EQ(pd_getsockname(sid, reinterpret_cast<sockaddr*>(&bound), &size), 0);
  *port = ntohs(bound.sin_port);
  return sid;
}

struct Pair {
  int listener, client, server;
};

inline Pair connected_pair() {
  std::uint16_t port = 0;
  Pair pair{};
  pair.listener = listening_socket(8, &port);
  pair.client = pd_socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in to = address_at(port);
  EXPECT_EQ(pd_connect(pair.client, pointer(to), sizeof to), 0) << std::strerror(errno);
  pair.server = pd_accept_timed(pair.listener, nullptr, nullptr, kSoon);
  EXPECT_GE(pair.server, 0) << std::strerror(errno);
  return pair;
}

inline int option(int sid, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(pd_getsockopt(sid, level, name, &value, &size), 0) << std::strerror(errno);
  return value;
}

inline void send_text(int sid, const std::string& text) {
  void* buffer = pd_malloc_for(sid, text.size());
  ASSERT_NE(buffer, nullptr) << std::strerror(errno);
  std::memcpy(buffer, text.data(), text.size());
  ASSERT_EQ(pd_send_timed(sid, buffer, text.size(), kSoon), static_cast<ssize_t>(text.size()))
      << std::strerror(errno);
  ASSERT_EQ(pd_free(buffer), 0) << std::strerror(errno);
}

inline std::string receive_text(int sid, std::size_t length) {
  std::string text(length, '\0');
  std::size_t got = 0;
  while (got < length) {
    const ssize_t more = pd_recv_into_timed(sid, text.data() + got, length - got, kSoon);
    if (more <= 0) break;
    got += static_cast<std::size_t>(more);
  }
  text.resize(got);
  return text;
}

// The exit status of a child that does `work`; 255 if it was killed.
inline int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

inline bool becomes_true(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kSoon);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class LibraryTest : public testing::Test {
 protected:
  LibraryTest() { EXPECT_EQ(pd_init(nullptr, 0, 0), 0) << std::strerror(errno); }
  ~LibraryTest() override { pd_release(); }

  RunningPipe pipe_;
};

}  // namespace ferry::pipe
